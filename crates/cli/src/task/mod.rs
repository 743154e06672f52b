//! `windlass task`: creates, inspects and changes tasks.

mod cancel;
mod create;
mod grant;
mod json;
mod list;
mod messages;
mod note;
mod options;
mod pages;
mod payload;
mod priority;
mod replay;
mod resume;
mod revoke;
mod show;
mod wait;
mod why;

pub(crate) use create::label;
pub(crate) use json::task_json;
pub(crate) use list::state;
pub(crate) use note::{attempts, first_line, since};
pub(crate) use options::TaskCommand;
pub(crate) use pages::{Page, Pages};
pub(crate) use payload::{brief, payload_json, readable};
