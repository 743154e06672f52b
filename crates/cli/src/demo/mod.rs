//! A tour in a few seconds: worker processes on one file, one of them killed on the way, and a
//! table of what the store has to say about it.

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
