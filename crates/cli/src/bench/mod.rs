//! Benchmarks of the engine on this machine. Every result states its durability.

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
