//! The task: its record, its states and its policies.

mod condition;
mod lifecycle;
mod list;
mod policy;
mod record;
mod route;
mod suspension;

pub use lifecycle::{
    ActiveAttempt, CountedByQuota, Lease, Lifecycle, Progress, PublicState, Readiness, Settle,
    Settled, SuspendedAttempt,
};
pub(crate) use list::TaskList;
pub use policy::{Backoff, FailureClass, Policy, Retry, RetryPolicy};
pub use record::{Fence, Task, TaskKey};
pub(crate) use route::check_token;
pub use route::{Route, SESSIONS, TagFilter, VersionRange, WorkerCapabilities};
pub use suspension::{
    Condition, Distinct, Matcher, OnTimeout, ResumeCause, Resumption, SuspendReason,
    SuspendRequest, Suspension, Timeout,
};
