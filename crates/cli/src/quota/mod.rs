//! `windlass quota`: concurrency limits and rate limits.

mod list;
mod options;
mod set;
mod told;

pub(crate) use list::show_all;
pub(crate) use options::QuotaCommand;
pub(crate) use told::{described, limits, noun, window};
