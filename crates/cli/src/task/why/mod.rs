//! `windlass task why`: explains what a task waits for, with evidence and help.

mod awaited;
mod evidence;
mod explain;
mod limits;
mod options;

pub(super) use options::Why;
