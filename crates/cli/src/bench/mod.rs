//! Benchmarks of the engine on this machine. Every result states its durability.

mod bench_store;
mod claim;
mod contended;
mod drain;
mod drain_processes;
mod fleet;
mod idle;
mod ledger;
mod load;
mod options;
mod pickup;
mod process;
mod replay;
mod report;
mod share;
mod signal;
mod sleeping;
mod snapshot;
mod tasks;
mod workflows;

pub(crate) use options::{Bench, BenchError};
