//! `windlass dlq`: the dead letters, and how to replay them.

mod list;
mod options;
mod replay;

pub(crate) use options::DlqCommand;
