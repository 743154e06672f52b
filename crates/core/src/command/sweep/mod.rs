//! The sweep: a page of all due records, one file per record type.

mod admission;
mod children;
mod concurrency_limit;
mod effect;
mod execution;
mod keyring;
mod limiter;
mod message;
mod node;
mod ready_route;
mod run;
mod suspension;
mod task;
mod worker;

pub use run::Sweep;

use run::Sweepable;
