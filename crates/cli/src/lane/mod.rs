//! `windlass lane`: what lanes do, and what they should do.

mod change;
mod list;
mod options;

pub(crate) use options::LaneCommand;
