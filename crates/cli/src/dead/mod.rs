//! `windlass dead`: tasks that have failed for good, and another try for them.

mod list;
mod options;
mod replay;

pub(crate) use options::DeadCommand;
