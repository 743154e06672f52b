//! The sweep: a page of all due records, one file per record type.

mod admission;
mod children;
mod effect;
mod execution;
mod gate;
mod keyring;
mod limiter;
mod message;
mod node;
mod queue;
mod run;
mod suspension;
mod task;
mod worker;

pub use run::Sweep;

use run::Sweepable;
