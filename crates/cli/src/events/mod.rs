//! `windlass events`: shows the log and follows it.

mod cursor;
mod entry;
mod options;
mod place;

pub(crate) use entry::{details, entry_json};
pub(crate) use options::Events;
