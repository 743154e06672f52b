//! Benchmarks of this machine with the engine that ships. Every figure says how durable it was.

mod claim;
mod contended;
mod drain;
mod fleet;
mod idle;
mod ledger;
mod load;
mod options;
mod pickup;
mod place;
mod process;
mod replay;
mod report;
mod share;
mod signal;
mod sleeping;
mod snapshot;
mod tasks;
mod team;
mod workflows;

pub(crate) use options::{Bench, BenchError};
