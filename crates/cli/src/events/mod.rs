//! `windlass events`: the log, and what is added to it.

mod cursor;
mod entry;
mod options;

pub(crate) use entry::{details, entry_json};
pub(crate) use options::Events;
