//! `windlass workflow`: starts, inspects and changes workflows and their histories.

mod cancel;
mod check;
mod clear;
mod confirm;
mod delete;
mod history;
mod list;
mod made;
mod open;
mod options;
mod past;
mod prune;
mod replay_check;
mod show;
mod signal;
mod start;
mod timeline;
mod tree;

pub(crate) use options::WorkflowCommand;
