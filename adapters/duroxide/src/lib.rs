//! duroxide's programs on Windlass: its `Provider` over a Windlass engine.
//!
//! An orchestration is a workflow task, its queue is the mailbox of that task, an ack is the commit
//! of a turn, and an activity is a step. The adapter holds no SQL and no tables of its own: it
//! submits commands and reads what the engine lists. It is not a runtime: duroxide's own is. Start
//! at [`WindlassProvider`].
//!
//! ```
//! use std::sync::Arc;
//! use duroxide::providers::Provider;
//! use windlass_duroxide::WindlassProvider;
//! use windlass_engine::{Config, Engine};
//! use windlass_store::MemoryStore;
//!
//! # #[tokio::main] async fn main() -> Result<(), windlass_engine::Error> {
//! let engine = Engine::start(MemoryStore::new(), Config::default()).await?;
//! let provider: Arc<dyn Provider> = Arc::new(WindlassProvider::new(engine.clone()));
//! assert_eq!(provider.name(), "windlass");
//! engine.shutdown().await
//! # }
//! ```

mod about;
mod ack;
mod activities;
mod admin;
mod append;
mod deletion;
mod error;
mod history;
mod names;
mod provider;
mod queue;
mod sessions;
mod token;
mod turn;
mod values;

pub use provider::WindlassProvider;
