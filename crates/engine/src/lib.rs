//! The engine around the core, shared by all stores.
//!
//! The engine takes commands from any number of callers, decides them in batches of one store
//! transaction each, and replies when the commit is durable. In the background it wakes waiting
//! claims, sweeps due records and trims the log. The rules are in `windlass-core`. Start at
//! [`Engine`].
//!
//! ```
//! use std::time::Duration;
//! use windlass_core::command::{Claim, Complete, Create, NewTask};
//! use windlass_engine::{Config, Engine};
//! use windlass_store::MemoryStore;
//!
//! # #[tokio::main] async fn main() -> Result<(), windlass_engine::Error> {
//! let engine = Engine::with_store(MemoryStore::new(), Config::default()).await?;
//! engine.submit(Create::one(NewTask::new("task-1", "email"))).await?;
//! let claimed = engine.claim(Claim::new("worker-1"), Duration::ZERO).await?;
//! engine.submit(Complete { fence: claimed[0].task.fence(), result: None }).await?;
//! engine.shutdown().await
//! # }
//! ```

mod batch;
mod batcher;
mod bulk_delete;
mod claim_wait;
mod command_queue;
mod concurrency_limits;
mod config;
mod dedicated_runtime;
mod delete_workflow;
mod durable_subscription;
mod effect_call;
mod engine;
mod error;
mod event_stream;
mod filter;
mod history;
mod keyed_notify;
mod lease_watch;
mod messages;
mod node_heartbeat;
mod queries;
mod recent_claims;
mod release_on_drop;
mod reply;
mod requests;
mod signal_builder;
mod signing_keys;
mod stats;
mod subscription;
mod task_builder;
mod task_handle;
mod task_watch;
mod timer;
mod waiters;
mod wake_matcher;
mod workers;
mod workflow_handle;

pub use bulk_delete::{BulkDelete, BulkDeleted};
pub use config::Config;
pub use durable_subscription::DurableSubscription;
pub use effect_call::{EffectCall, EffectError, ExternalCall, ExternalService, Lookup};
pub use engine::Engine;
pub use error::Error;
pub use event_stream::EventStream;
pub use filter::EventFilter;
pub use history::PendingInput;
pub use lease_watch::LeaseWatch;
pub use messages::{ReceivedMessage, SuspendResult};
pub use queries::TaskFilter;
pub use reply::{ClaimedTask, CommandResults, TaskInput};
pub use requests::{
    AdmitError, AdmittedResponse, OnInFlight, RequestAdmission, RequestContext, RequestGuard,
    RequestPolicy, RequestScope,
};
pub use signal_builder::SignalBuilder;
pub use signing_keys::SigningKeyInfo;
pub use stats::Stats;
pub use subscription::Subscription;
pub use task_builder::TaskBuilder;
pub use task_handle::TaskHandle;
pub use workflow_handle::{WorkflowBuilder, WorkflowHandle, WorkflowStatus};
