//! The `windlass` command as people and scripts run it.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod bench;
mod children;
mod create;
mod demo;
mod dlq;
mod doctor;
mod documents;
mod events;
mod help;
mod lane;
mod memory;
mod migrate;
mod missing_tables;
mod node;
mod open_store;
mod postgres;
mod quota;
mod running_application;
mod signal;
mod task;
mod test_store;
mod unwritable;
mod why;
mod worker;
mod worker_list;
mod worker_reports;
mod workflow;

use std::process::{Command, Output};

fn windlass(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The JSON object printed by a command.
fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(&text(&output.stdout)).unwrap()
}
