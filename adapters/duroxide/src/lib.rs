//! Runs duroxide programs on Windlass: a duroxide `Provider` over a Windlass engine.
//!
//! An orchestration is a workflow task, its queue is the mailbox of that task, an ack commits a
//! turn, and an activity is a step. The adapter has neither SQL nor tables: it submits
//! commands and queries the engine. It is not a runtime: that is part of duroxide. Start at
//! [`WindlassProvider`].
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use duroxide::runtime::Runtime;
//! use duroxide::runtime::registry::ActivityRegistry;
//! use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
//! use windlass_duroxide::WindlassProvider;
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(WindlassProvider::open("memory:").await?);
//! let greet = |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) };
//! let hello = |ctx: OrchestrationContext, name: String| async move {
//!     ctx.schedule_activity("greet", name).await
//! };
//! let activities = ActivityRegistry::builder().register("greet", greet).build();
//! let orchestrations = OrchestrationRegistry::builder().register("hello", hello).build();
//! let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
//! let client = Client::new(store.clone());
//! client.start_orchestration("hello-1", "hello", "Ada").await?;
//! client.wait_for_orchestration("hello-1", Duration::from_secs(10)).await?;
//! runtime.shutdown(None).await;
//! store.engine().shutdown().await?;
//! # Ok(()) }
//! ```

/// Runs the example of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/duroxide.md")]
mod guide {}

mod ack;
mod activities;
mod admin;
mod append;
mod deletion;
mod error;
mod execution_summary;
mod history;
mod history_cache;
mod names;
mod provider;
mod queue;
mod sessions;
mod token;
mod turn;
mod values;

pub use provider::WindlassProvider;
