//! A durable execution engine, embedded in your program: tasks, workflows and idempotent requests
//! that survive crashes, restarts, stalled workers and duplicates. There is no server to run.
//!
//! This page is a tutorial of ten minutes. This crate opens a store and re-exports the crates
//! behind it. Start at [`Engine::open`], [`Engine::worker`] and [`Engine::start_workflow`].
//!
//! # 1. A task
//!
//! A *task* is a stored unit of work. A *worker* claims it under a lease, runs the handler of its
//! kind, and commits the result. An `Ok` of any call means that the change is on disk.
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
//! The URL selects the store: `sqlite://app.db` is a file that several processes of one machine
//! share, `postgres://...` a database for many machines, `memory:` is for tests. Nothing else in
//! the program changes.
//!
//! # 2. Retries
//!
//! A handler that returns an error has failed its attempt. The retry policy of the task decides
//! when the next attempt starts. [`Context::non_retryable`] fails the task for good.
//!
//! ```
//! # use std::time::Duration;
//! use windlass::{Context, Engine, Failure, RetryPolicy};
//!
//! async fn fetch(ctx: Context, url: String) -> Result<u32, Failure> {
//!     if !url.starts_with("https://") {
//!         return Err(ctx.non_retryable("only https"));
//!     }
//!     if ctx.attempt() < 3 {
//!         return Err(Failure::transient("the server is busy"));
//!     }
//!     Ok(ctx.attempt())
//! }
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = Engine::open("memory:").await?;
//! let worker = engine.worker("fetcher").handler("fetch", fetch).start()?;
//! let task = engine.create("fetch").payload("https://a").retry(RetryPolicy::fixed(5, 10)).await?;
//! assert_eq!(task.result::<u32>().await?, 3);
//! # worker.drain(Duration::from_secs(10)).await;
//! # engine.shutdown().await?;
//! # Ok(()) }
//! ```
//!
//! # 3. A workflow
//!
//! A *workflow* is async code with several steps. Each step is recorded in its history. After a
//! crash another worker replays the history and resumes the code at the step where it stopped. So
//! the code must be deterministic: side effects belong into *activities*, which are ordinary
//! handlers. A *signal* is a named message to a workflow or task.
//!
//! ```
//! use std::time::Duration;
//! use windlass::{Context, Engine, Failure, StepError, Workflow};
//!
//! async fn charge(_: Context, cents: u64) -> Result<String, Failure> {
//!     Ok(format!("{cents} cents paid"))
//! }
//!
//! async fn order(ctx: Workflow, cents: u64) -> Result<String, StepError> {
//!     let paid = ctx.activity(charge, &cents).await?;
//!     let by: String = ctx.wait_signal("packed").timeout(Duration::from_secs(3_600)).await?;
//!     Ok(format!("{paid}, packed by {by}"))
//! }
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = Engine::open("memory:").await?;
//! let worker = engine.worker("orders").workflow(order).activity(charge).start()?;
//! let order = engine.start_workflow(order, &500).id("order-42").await?;
//! engine.signal("order-42", "packed").payload("ada").await?;
//! assert_eq!(order.result().await?, "500 cents paid, packed by ada");
//! # worker.drain(Duration::from_secs(10)).await;
//! # engine.shutdown().await?;
//! # Ok(()) }
//! ```
//!
//! # 4. A request that takes effect once
//!
//! A client that gets no response sends its request again. Under an idempotency key the engine runs
//! the handler once, and every duplicate gets the stored response.
//!
//! ```
//! use windlass::{Engine, RequestContext, RequestScope};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = Engine::open("memory:").await?;
//! let scope = RequestScope::new("ada", "charge"); // principal and operation
//! let charge = async |_: RequestContext| Ok::<_, String>("receipt 1".to_owned());
//! let first = engine.admit(&scope, "order-2024-000017", &999, charge).await?;
//! let again = engine.admit(&scope, "order-2024-000017", &999, charge).await?;
//! assert_eq!(first.response, again.response);
//! assert!(again.replayed);
//! # engine.shutdown().await?;
//! # Ok(()) }
//! ```
//!
//! # 5. Operation
//!
//! The `windlass` command works on the same store: `windlass task list`, `windlass task why ID`
//! (why a task does not run), `windlass workflow history ID`, `windlass dlq list` (failed tasks),
//! `windlass events` (the log) and `windlass doctor`.
//!
//! Every error has a `code()` that is stable across versions. [`Error`] lists how a call can fail,
//! [`Rejection`] why the engine can reject a command. The guide is in the folder `docs` of the
//! repository.

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
    #[doc = include_str!("../../../docs/guide/children.md")]
    mod guide_children {}
    #[doc = include_str!("../../../docs/guide/payment.md")]
    mod payment {}
    #[doc = include_str!("../../../docs/guide/external-services.md")]
    mod external_services {}
    #[doc = include_str!("../../../docs/learn/workflows.md")]
    mod workflows {}
    #[doc = include_str!("../../../docs/guide/saga.md")]
    mod workflow_saga {}
    #[doc = include_str!("../../../docs/guide/approval-workflow.md")]
    mod workflow_approval {}
    #[doc = include_str!("../../../docs/guide/fan-out.md")]
    mod workflow_fan_out {}
    #[doc = include_str!("../../../docs/guide/continue-as-new.md")]
    mod continue_as_new {}
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
pub use store_url::{InvalidStoreUrl, Secret, StoreUrl};

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
    AdmitError, AdmittedResponse, BulkDelete, BulkDeleted, ClaimedTask, CommandResults, Config,
    DurableSubscription, EffectCall, EffectError, Error, EventFilter, EventStream, ExternalCall,
    ExternalService, Lookup, OnInFlight, ReceivedMessage, RequestAdmission, RequestContext,
    RequestGuard, RequestPolicy, RequestScope, SignalBuilder, SigningKeyInfo, Stats, Subscription,
    SuspendResult, TaskBuilder, TaskFilter, TaskHandle, TaskInput, WorkflowBuilder, WorkflowHandle,
    WorkflowStatus,
};
pub use windlass_store::{Clock, StoreDescription, StoreError, SystemClock};
pub use windlass_worker::workflow::StepError;
pub use windlass_worker::{
    AttemptReport, Context, Failure, SettleRequest, SettleResult, ShortLease, WaitFor, Worker,
    WorkerHandle,
};
pub use workflow::Workflow;
