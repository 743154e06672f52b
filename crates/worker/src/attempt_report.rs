use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Complete, Release, Snooze, WaitChildren};
use windlass_core::{Command, Fence, Kind, LaneName, Payload, Rejection};
use windlass_engine::Error;

use crate::failure::Failure;
use crate::handler::Handled;

/// The outcome of one attempt; see [`crate::Worker::on_settled`].
#[derive(Debug)]
#[non_exhaustive]
pub struct AttemptReport {
    /// Task and epoch: they identify the lease of the attempt.
    pub fence: Fence,
    pub kind: Kind,
    pub lane: LaneName,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// What the worker requested; none if it held no lease to settle.
    pub request: Option<SettleRequest>,
    pub result: SettleResult,
    /// From the start of the attempt to the response.
    pub elapsed: Duration,
}

/// What a worker requests at the end of an attempt.
#[derive(Clone, Debug)]
pub enum SettleRequest {
    /// The handler succeeded, with this result.
    Complete(Option<Payload>),
    Fail(Failure),
    /// Release the task; the attempt is not counted.
    Release,
    /// Snooze the task; the attempt is not counted.
    Snooze {
        delay: Duration,
        reason: String,
    },
    /// Wait for the children of the task; the same attempt resumes after that.
    WaitChildren,
    /// The handler has suspended the task, which ended the lease.
    Suspend,
}

/// The response to what was requested.
#[derive(Debug)]
pub enum SettleResult {
    /// The request is committed.
    Settled,
    /// The request was rejected, for example because the task was cancelled meanwhile.
    Rejected(Error),
    /// The lease expired before there was a response. The request may be committed or not.
    LeaseExpired,
    /// The lease was lost while the handler ran. The handler was stopped; nothing was requested.
    Lost(Rejection),
}

impl SettleResult {
    pub fn is_settled(&self) -> bool {
        matches!(self, SettleResult::Settled)
    }

    /// The stable code of why it is not settled.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            SettleResult::Settled => None,
            SettleResult::Rejected(error) => Some(error.code()),
            SettleResult::LeaseExpired => Some("lease_expired"),
            SettleResult::Lost(rejection) => Some(rejection.code()),
        }
    }
}

impl fmt::Display for SettleResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettleResult::Settled => f.write_str("settled"),
            SettleResult::Rejected(error) => error.fmt(f),
            SettleResult::LeaseExpired => {
                f.write_str("the lease expired before it could be settled")
            }
            SettleResult::Lost(rejection) => rejection.fmt(f),
        }
    }
}

impl SettleRequest {
    pub(crate) fn by(handled: Handled) -> Self {
        match handled {
            Ok(result) => SettleRequest::Complete(result),
            Err(failure) if failure.waiting_for_children() => SettleRequest::WaitChildren,
            Err(failure) if failure.is_suspended() => SettleRequest::Suspend,
            Err(failure) => match failure.delay() {
                Some(delay) => SettleRequest::Snooze { delay, reason: failure.reason().to_owned() },
                None => SettleRequest::Fail(failure),
            },
        }
    }

    /// The command that settles the attempt; none if it is settled already.
    pub(crate) fn command(&self, fence: Fence) -> Option<Command> {
        Some(match self {
            SettleRequest::Complete(result) => Complete { fence, result: result.clone() }.into(),
            SettleRequest::Fail(failure) => failure.clone().into_command(fence).into(),
            SettleRequest::Release => Release { fence }.into(),
            SettleRequest::Snooze { delay, .. } => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                Snooze { fence, delay_ms }.into()
            }
            SettleRequest::WaitChildren => WaitChildren { fence }.into(),
            SettleRequest::Suspend => return None,
        })
    }
}

type Listen<T> = dyn Fn(&T) + Send + Sync;

/// An optional callback for events of type `T`. Clones share it.
pub(crate) struct Listener<T>(Option<Arc<Listen<T>>>);

impl<T> Listener<T> {
    pub(crate) fn new(listen: impl Fn(&T) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    pub(crate) fn call(&self, event: &T) {
        if let Some(listen) = &self.0 {
            listen(event);
        }
    }
}

impl<T> Clone for Listener<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Listener<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
