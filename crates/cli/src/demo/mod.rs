//! A demo of a few seconds: worker processes on one file, one of them killed, and a table of the
//! results from the store.

mod effects;
mod error;
mod history;
mod options;
mod plan;
mod printer;
mod run;
mod tally;
mod worker;
mod worker_processes;

pub(crate) use error::DemoError;
pub(crate) use options::Demo;
pub(crate) use worker::DemoWorker;
