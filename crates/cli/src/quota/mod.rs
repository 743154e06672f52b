//! `windlass quota`: how many may run at once, and how many may start per time.

mod list;
mod options;
mod set;
mod told;

pub(crate) use list::show_all;
pub(crate) use options::QuotaCommand;
pub(crate) use told::{described, limits, window};
