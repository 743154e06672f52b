//! The engine as its callers see it.

#![allow(clippy::unwrap_used, reason = "a test fails on unexpected values")]

mod claims;
mod effects;
mod handle;
mod lifecycle;
mod limits;
mod load;
mod log;
mod messages;
mod nodes;
mod requests;
mod rules;
mod secrets;
mod sqlite;
mod stage;
mod subscriptions;
mod workers;
