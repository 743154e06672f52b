//! One seeded stream of commands through every store and through a plain shelf. After every step
//! the answers, the change sets and full snapshots are the same, or the run ends with the seed and
//! the step at which they were not.
//!
//! Several commands are sometimes decided in one world. With [`crate::Order::Strict`] such a batch
//! must also be worth its commands one by one.

mod coverage;
mod generator;
mod live;
mod mail;
mod oracle;
mod parcels;
mod requests;
mod run;
mod step;
mod subject;
mod wish;
mod workers;
mod workflows;

pub use coverage::{Coverage, REQUIRED};
pub use run::{DEFAULT_SEEDS, Divergence, STEPS, run, seeds, seeds_of_commit};
