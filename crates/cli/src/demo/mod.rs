//! A demo of a few seconds: worker processes on one file, one of them killed, and a table of the
//! results from the store.

mod crew;
mod effects;
mod error;
mod history;
mod options;
mod plan;
mod play;
mod tally;
mod tell;
mod worker;

pub(crate) use error::DemoError;
pub(crate) use options::Demo;
pub(crate) use worker::DemoWorker;
