//! Test suites for any store that supplies a [`Factory`], and a store with injectable faults.
//!
//! * [`conformance::run`]: named cases about rows, versions, ranges, the log, payloads and time.
//! * [`differential::run`]: one seeded stream of commands through every store and the reference
//!   [`windlass_core::ReferenceTables`]; results and full snapshots are compared after every step.
//! * [`every_fault::run`]: every fault at every call of a script, which must reach the same result.
//! * [`FaultStore`]: wraps a store and makes chosen calls fail, crash or wait.
//! * [`format::unreleased`]: creates a database of an unreleased format.
//! * [`postgres::Server`]: a Postgres for the duration of a test; the program `with-postgres` runs
//!   one for the duration of a command.
//!
//! It is not an engine: [`execute`] runs commands without batching, timers or wakes. Start at
//! [`Factory`].
//!
//! ```
//! use windlass_store_test::{MemoryFactory, conformance, differential};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let factory = MemoryFactory::default();
//! conformance::run(&factory).await;
//! differential::run(0..1, &[("memory", &factory)]).await.unwrap();
//! # }
//! ```

pub mod bouncer;
pub mod conformance;
pub mod differential;
pub mod every_fault;
mod factory;
mod fault;
mod fixture;
pub mod format;
mod log_fold;
pub mod postgres;
mod random;
mod runner;
mod snapshot;
pub mod time_order;

pub use factory::{Factory, MemoryFactory};
pub use fault::{Call, CrashPoint, Failure, FaultStore, Pause};
pub use log_fold::LogFold;
pub use random::Random;
pub use runner::{Batch, CommandResult, Order, execute, execute_batch};
pub use snapshot::Snapshot;
