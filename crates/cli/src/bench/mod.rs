//! Benchmarks of this machine with the engine that ships. Every figure says how durable it was.

mod claim;
mod drain;
mod idle;
mod options;
mod pickup;
mod place;
mod process;
mod report;
mod tasks;

pub(crate) use options::{Bench, BenchError};
