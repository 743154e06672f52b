//! Durable workflows: ordinary async code that resumes where it stopped, also after a crash.
//!
//! Workflow code gets a [`Workflow`] and does everything durable through it. It is started by
//! [`Engine::start_workflow`][crate::Engine::start_workflow], and run by a worker that registered
//! it with [`Worker::workflow`][crate::Worker::workflow]. [`testing`] runs it in memory, under
//! virtual time and with mocks, and replays recorded histories against changed code.
//!
//! ```
//! use std::time::Duration;
//! use windlass::{Context, Engine, Failure, StepError, Workflow};
//!
//! async fn greet(_: Context, name: String) -> Result<String, Failure> {
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! async fn welcome(ctx: Workflow, name: String) -> Result<String, StepError> {
//!     ctx.sleep(Duration::from_millis(20)).await?;
//!     ctx.activity(greet, &name).await
//! }
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open("memory:").await?;
//! let worker = engine.worker("greeter").activity(greet).workflow(welcome).start()?;
//!
//! let started = engine.start_workflow(welcome, &"Ada".to_owned()).id("welcome-ada").await?;
//! let greeting: String = started.result().await?;
//! assert_eq!(greeting, "Hello, Ada!");
//!
//! worker.drain(Duration::from_secs(10)).await;
//! engine.shutdown().await?;
//! # Ok(()) }
//! ```

pub use windlass_core::{
    Execution, HistoryPayload, RecordedCommand, StepOutcome, TurnRecord, WorkflowInput,
    WorkflowProperty, WorkflowState,
};
pub use windlass_worker::workflow::{
    Activity, AnonymousFunction, Cancellation, Child, DetachedWorkflow, Either, ExecutionStart,
    Info, Join, LocalActivity, MAX_CARRIED_SIGNALS, Nondeterminism, OneOf3, OneOf4, OneOf5, OneOf6,
    OneOf7, OneOf8, ReplayStep, Select, SignalStream, SignalWait, Signature, Step, StepError,
    TryJoin, UnreadSignal, Workflow, WorkflowDefinition, testing,
};
