//! `windlass quota`: concurrency limits and rate limits.

mod format;
mod list;
mod options;
mod set;

pub(crate) use format::{described, limits, noun, window};
pub(crate) use list::show_all;
pub(crate) use options::QuotaCommand;
