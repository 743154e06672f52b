//! Durable tasks, embedded in your program.
//!
//! An accepted task is stored in a SQLite file until a worker completes it: through crashes,
//! restarts, stalled workers and duplicate requests. There is no server to run. This crate is the
//! entry point: it opens a store and re-exports the crates behind it; it has no logic itself.
//! Start at [`Engine::open`], [`Engine::create`][windlass_engine::Engine::create] and
//! [`Engine::worker`].
//!
//! ```
//! use std::time::Duration;
//! use windlass::{Context, Engine};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}", folder.path().join("app.db").display());
//! # let url = url.as_str();
//! // let url = "sqlite://app.db";
//! let engine = Engine::open(url).await?;
//! let worker = engine
//!     .worker("greeter")
//!     .handler("greet", async |_: Context, name: String| Ok(format!("Hello, {name}!")))
//!     .start()?;
//!
//! let task = engine.create("greet").payload("Ada").await?;
//! assert_eq!(task.result::<String>().await?, "Hello, Ada!");
//!
//! worker.drain(Duration::from_secs(10)).await;
//! engine.shutdown().await?;
//! # Ok(()) }
//! ```
//!
//! Every error has a `code()` that is stable across versions. [`Error`] lists how a call can fail,
//! [`Rejection`] why the engine can refuse a command.

mod engine;
mod store_url;
pub mod workflow;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// Runs the examples of the guide.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/learn/tasks.md")]
    mod tasks {}
    #[doc = include_str!("../../../docs/learn/leases.md")]
    mod leases {}
    #[doc = include_str!("../../../docs/learn/attempts.md")]
    mod attempts {}
    #[doc = include_str!("../../../docs/learn/lanes.md")]
    mod lanes {}
    #[doc = include_str!("../../../docs/learn/creating.md")]
    mod creating {}
    #[doc = include_str!("../../../docs/learn/workers.md")]
    mod workers {}
    #[doc = include_str!("../../../docs/learn/children.md")]
    mod children {}
    #[doc = include_str!("../../../docs/learn/log.md")]
    mod log {}
    #[doc = include_str!("../../../docs/learn/time.md")]
    mod time {}
    #[doc = include_str!("../../../docs/learn/limits.md")]
    mod limits {}
    #[doc = include_str!("../../../docs/learn/signals.md")]
    mod signals {}
    #[doc = include_str!("../../../docs/learn/requests.md")]
    mod requests {}
    #[doc = include_str!("../../../docs/guide/approval.md")]
    mod approval {}
    #[doc = include_str!("../../../docs/guide/callback.md")]
    mod callback {}
    #[doc = include_str!("../../../docs/guide/gather.md")]
    mod gather {}
    #[doc = include_str!("../../../docs/guide/payment.md")]
    mod payment {}
    #[doc = include_str!("../../../docs/guide/downstream.md")]
    mod downstream {}
    #[doc = include_str!("../../../docs/learn/workflows.md")]
    mod workflows {}
    #[doc = include_str!("../../../docs/guide/saga.md")]
    mod workflow_saga {}
    #[doc = include_str!("../../../docs/guide/approval-workflow.md")]
    mod workflow_approval {}
    #[doc = include_str!("../../../docs/guide/fan-out.md")]
    mod workflow_fan_out {}
    #[doc = include_str!("../../../docs/guide/forever.md")]
    mod workflow_forever {}
    #[doc = include_str!("../../../docs/guide/agent.md")]
    mod workflow_agent {}
    #[doc = include_str!("../../../docs/guide/upgrade-workflow.md")]
    mod workflow_upgrade {}
}

/// Runs the examples of the guarantees.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guarantees/README.md")]
mod guarantees {}

pub use engine::{Engine, OpenError};
pub use store_url::{BadUrl, Secret, StoreUrl};

pub use windlass_core::Worker as RegisteredWorker;
pub use windlass_core::command::{
    CreatedWaitpoint, NewMessage, NewWaitpoint, SentMessage, SuspendTimeout,
};
pub use windlass_core::{
    ActiveAttempt, AfterTurn, Backoff, Change, ChildCounts, Children, Command, ConcurrencyLimit,
    Condition, Cursor, CursorExpired, Distinct, Effect, EffectOwner, EventCategory, FailureClass,
    Fence, HeldLeases, IdempotencyKey, Kind, Lane, LaneLimit, LaneName, LaneState, Lease,
    LeaseLoss, LeaseRequest, Lifecycle, LimitKey, LimitKind, LogEvent, Matcher, Message, Node,
    NodeId, OnTimeout, Outcome, Payload, PayloadKey, Policy, Problem, Progress, PublicState, Rate,
    Readiness, Rejection, RequestKey, RequestTtls, ResumeCause, Resumption, Retry, RetryPolicy,
    Route, SESSIONS, Settled, SubscriptionCursor, SuspendReason, Suspension, TagFilter, Task,
    TaskId, TaskKey, Tenant, Timestamp, Waitpoint, WaitpointId, Why, WorkerCapabilities, WorkerId,
    command, limits,
};
pub use windlass_core::{Secret as SigningSecret, Token, WaitpointState};
pub use windlass_engine::{
    AdmitError, AdmittedResponse, BulkDelete, BulkDeleted, Call, Claimed, CommandResults, Config,
    DurableSubscription, EffectCall, EffectError, Error, Events, ExternalService, Filter, Input,
    KeyInfo, Lookup, OnInFlight, ReceivedMessage, RequestAdmission, RequestContext, RequestGuard,
    RequestPolicy, RequestScope, SignalBuilder, Stats, Status, Subscription, Suspended,
    TaskBuilder, TaskFilter, TaskHandle, WorkflowBuilder, WorkflowHandle,
};
pub use windlass_store::{Clock, Description, StoreError, SystemClock};
pub use windlass_worker::workflow::StepError;
pub use windlass_worker::{
    AttemptReport, Context, Failure, SettleRequest, SettleResult, ShortLease, WaitFor, Worker,
    WorkerHandle,
};
pub use workflow::Workflow;
