//! Runs user code for the tasks of an engine.
//!
//! A worker claims tasks, runs the handler of each task's kind, renews the lease while the handler
//! runs, and settles the outcome. Whether a failed attempt is retried is decided by the task's
//! policy, in the engine. A handler may run more than once for one task, for example after its
//! worker lost the lease; a run whose fence is stale cannot be settled.
//! Start at [`Worker`].
//!
//! ```
//! use std::time::Duration;
//! use windlass_core::command::{Create, NewTask};
//! use windlass_core::{Payload, TaskKey, Tenant};
//! use windlass_engine::{Config, Engine};
//! use windlass_store::MemoryStore;
//! use windlass_worker::{Context, Worker};
//!
//! # #[tokio::main] async fn main() -> Result<(), windlass_engine::Error> {
//! let engine = Engine::with_store(MemoryStore::new(), Config::default()).await?;
//! let (done, mut finished) = tokio::sync::mpsc::channel(1);
//! let running = Worker::new(engine.clone(), "worker-1")
//!     .concurrency(16)
//!     .handler("length", move |_: Context, text: String| {
//!         let done = done.clone();
//!         async move {
//!             done.send(()).await?;
//!             Ok(text.len())
//!         }
//!     })
//!     .start()?;
//!
//! let payload = Some(Payload::json("\"windlass\""));
//! engine.submit(Create::one(NewTask { payload, ..NewTask::new("t", "length") })).await?;
//! finished.recv().await.expect("the handler runs");
//! running.drain(Duration::from_secs(10)).await;
//!
//! let key = TaskKey { tenant: Tenant::default(), id: "t".into() };
//! assert_eq!(engine.result(&key).await?, Some(Payload::json("8")));
//! engine.shutdown().await
//! # }
//! ```

mod attempt;
mod attempt_report;
mod attempt_set;
mod cancellation_token;
mod claimer;
mod context;
mod failure;
mod handler;
mod lease;
mod lease_registry;
mod recording;
mod retry_delay;
mod short_lease;
mod speculative_turn;
mod suspend;
mod turn_attempt;
mod turn_commit;
mod turn_effects;
mod wait_for;
mod worker;
mod worker_handle;
mod worker_heartbeat;
mod worker_state;
pub mod workflow;
mod workflow_cache;
mod workflow_definitions;

pub use attempt_report::{AttemptReport, SettleRequest, SettleResult};
pub use context::Context;
pub use failure::Failure;
pub use short_lease::ShortLease;
pub use wait_for::WaitFor;
pub use worker::Worker;
pub use worker_handle::WorkerHandle;
