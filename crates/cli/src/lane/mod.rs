//! `windlass lane`: lists lanes and changes their state.

mod change;
mod list;
mod options;

pub(crate) use options::LaneCommand;
