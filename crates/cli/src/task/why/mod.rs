//! `windlass task why`: what a task waits for, with the evidence and what helps.

mod awaited;
mod evidence;
mod explain;
mod limits;
mod options;

pub(super) use options::Why;
