//! `windlass events`: shows the log and follows it.

mod cursor;
mod entry;
mod options;
mod subscription_cursor;

pub(crate) use entry::{details, entry_json};
pub(crate) use options::Events;
