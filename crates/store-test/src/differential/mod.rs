//! One seeded stream of commands through every store and through the reference tables. After each
//! step, results, change sets and full snapshots must be equal; otherwise the run ends with the
//! seed and step of the difference.
//!
//! Some steps decide several commands in one batch. With [`crate::Order::Strict`] such a batch must
//! also be equivalent to its commands one by one.

mod commands;
mod coverage;
mod generator;
mod live;
mod mailboxes;
mod messages;
mod oracle;
mod requests;
mod run;
mod step;
mod subject;
mod workers;
mod workflows;

pub use coverage::{Coverage, REQUIRED};
pub use run::{DEFAULT_SEEDS, Divergence, STEPS, run, seeds, seeds_of_commit};
