//! Windlass core: records, commands and the state transitions between them.
//!
//! Core is synchronous and deterministic: no clock, no randomness, no I/O. It decides which changes
//! a command makes to the loaded records; stores and engines are other crates. Start at [`decide`]
//! and at the files of [`command`].
//!
//! ```
//! use windlass_core::command::{Claim, Create, NewTask, Outcome};
//! use windlass_core::{ReferenceTables, Timestamp};
//!
//! let mut tables = ReferenceTables::default();
//! let now = Timestamp::from_millis(1_000);
//! let create = Create::one(NewTask::new("task-1", "email"));
//! tables.execute(now, &create.into()).unwrap();
//! let claimed = tables.execute(now, &Claim::new("worker-1").into()).unwrap();
//! assert!(matches!(claimed, Outcome::Claimed(tasks) if tasks[0].attempts == 1));
//! ```

mod admission;
mod children;
mod code_version;
pub mod command;
mod concurrency_limit;
mod digest;
mod effect;
mod event;
mod execution;
mod fingerprint;
mod history;
mod keyring;
mod lane;
mod limiter;
pub mod limits;
mod log;
mod mailbox;
mod name;
mod new_message;
mod node;
mod payload;
mod primitive;
mod rate;
mod ready_route;
mod record;
mod reference_tables;
mod rejection;
mod request;
mod row;
mod subscription_cursor;
mod task;
#[cfg(test)]
mod testing;
mod time;
mod token;
mod waitpoint;
mod why;
mod worker;
mod workflow;
mod workflow_property;
mod world;

pub use admission::{Admission, Produced};
pub use children::{ChildCounts, Children};
pub use code_version::CodeVersion;
pub use command::{Command, Decided, Outcome, decide, probe};
pub use concurrency_limit::{ConcurrencyLimit, LimitKey, LimitKind, Owner};
pub use digest::Digest;
pub use effect::{Effect, EffectOwner, EffectResult};
pub use event::{AfterTurn, Change, Event, EventCategory, LeaseLoss, LogEvent};
pub use execution::Execution;
pub use fingerprint::{IGNORED_FIELDS, fingerprint};
pub use history::{HistoryPayload, RecordedCommand, StepOutcome, TurnRecord, WorkflowInput};
pub use keyring::{Keyring, Secret, SigningKey};
pub use lane::{Lane, LaneLimit, LaneState};
pub use limiter::Limiter;
pub use log::{Cursor, CursorExpired, Log};
pub use mailbox::{BufferedKey, Mailbox, Message};
pub use name::{IdempotencyKey, Kind, LaneName, NodeId, TaskId, Tenant, WaitpointId, WorkerId};
pub use node::Node;
pub use payload::{Payload, PayloadKey, Slot};
pub use rate::{Rate, WindowSlice};
pub use ready_route::ReadyRoute;
pub use record::{AnyRecord, Record, StoredRecord, Table, is_readable, read_row};
pub use reference_tables::{ReferenceTables, VersionConflict};
pub use rejection::{Problem, Rejection};
pub use request::{Request, RequestKey, RequestState, RequestTtls};
pub use row::{Index, IndexSpec, Range, Row, RowKey, Scan, StoredRow, TableSpec, Value, Version};
pub use subscription_cursor::SubscriptionCursor;
pub use task::{
    ActiveAttempt, Backoff, Condition, CountedByQuota, Distinct, FailureClass, Fence, Lease,
    Lifecycle, Matcher, OnTimeout, Policy, Progress, PublicState, Readiness, ResumeCause,
    Resumption, Retry, RetryPolicy, Route, SESSIONS, Settle, Settled, SuspendReason,
    SuspendRequest, SuspendedAttempt, Suspension, TagFilter, Task, TaskKey, Timeout, VersionRange,
    WorkerCapabilities,
};
pub use time::Timestamp;
pub use token::Token;
pub use waitpoint::{Waitpoint, WaitpointState};
pub use why::{Why, WhyContext, why};
pub use worker::{HeldLeases, LeaseRequest, Worker};
pub use workflow::{CompletedTask, StepCompletion, Sticky, WorkflowState};
pub use workflow_property::WorkflowProperty;
pub use world::{
    ChangeSet, Halt, Hints, LoadRequest, Loaded, LogEntry, PageRow, Update, Wake, World,
};
