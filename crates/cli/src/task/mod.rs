//! `windlass task`: create tasks, look at them, move them.

mod cancel;
mod create;
mod json;
mod list;
mod note;
mod options;
mod pages;
mod payload;
mod priority;
mod replay;
mod resume;
mod show;
mod wait;
mod why;

pub(crate) use json::task_json;
pub(crate) use note::{attempts, first_line, since};
pub(crate) use options::TaskCommand;
pub(crate) use pages::{Page, Pages};
