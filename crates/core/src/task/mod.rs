//! The task: its record, the states it can be in, and the policies it carries.

mod lifecycle;
mod policy;
mod record;
mod route;

pub use lifecycle::{Lease, Lifecycle, Progress, PublicState, Run, Settle, Settled};
pub use policy::{Backoff, FailureClass, Policy, Retry, RetryPolicy};
pub use record::{Fence, Task, TaskKey};
pub use route::{Offer, Route, TagFilter};
