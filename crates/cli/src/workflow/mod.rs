//! `windlass workflow`: starts, inspects and changes workflows and their histories.

mod bulk_delete;
mod cancel;
mod check;
mod check_history;
mod command_text;
mod confirm;
mod delete;
mod executions;
mod history;
mod list;
mod open;
mod options;
mod prune;
mod show;
mod signal;
mod start;
mod timeline;
mod tree;

pub(crate) use options::WorkflowArgs;
