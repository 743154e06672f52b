use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Complete, Delay, Release, WaitChildren};
use windlass_core::{Command, Fence, Kind, LaneName, Payload, Rejection};
use windlass_engine::Error;

use crate::failure::Failure;
use crate::handler::Handled;

/// The outcome of one attempt; see [`crate::Worker::on_settled`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Settlement {
    /// Task and epoch: they identify the lease of the attempt.
    pub fence: Fence,
    pub kind: Kind,
    pub lane: LaneName,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// What the worker requested; none if it held no lease to settle.
    pub asked: Option<Asked>,
    pub answer: Answer,
    /// From the start of the attempt to the response.
    pub took: Duration,
}

/// What a worker requests at the end of an attempt.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The handler succeeded, with this result.
    Complete(Option<Payload>),
    Fail(Failure),
    /// Release the task; the attempt is not counted.
    Release,
    /// Snooze the task; the attempt is not counted.
    Delay {
        pause: Duration,
        reason: String,
    },
    /// Wait for the children of the task; the same attempt resumes after that.
    WaitChildren,
    /// The handler has suspended the task, which ended the lease.
    Suspend,
}

/// The response to what was requested.
#[derive(Debug)]
pub enum Answer {
    /// The request is committed.
    Settled,
    /// The request was rejected, for example because the task was cancelled meanwhile.
    Refused(Error),
    /// The lease expired before there was a response. The request may be committed or not.
    LeaseOver,
    /// The lease was lost while the handler ran. The handler was stopped; nothing was requested.
    Lost(Rejection),
}

impl Answer {
    pub fn is_settled(&self) -> bool {
        matches!(self, Answer::Settled)
    }

    /// The stable code of why it is not settled.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Answer::Settled => None,
            Answer::Refused(error) => Some(error.code()),
            Answer::LeaseOver => Some("lease_over"),
            Answer::Lost(rejection) => Some(rejection.code()),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Settled => f.write_str("settled"),
            Answer::Refused(error) => error.fmt(f),
            Answer::LeaseOver => f.write_str("the lease expired before it could be settled"),
            Answer::Lost(rejection) => rejection.fmt(f),
        }
    }
}

impl Asked {
    pub(crate) fn by(handled: Handled) -> Self {
        match handled {
            Ok(result) => Asked::Complete(result),
            Err(failure) if failure.waits_for_children() => Asked::WaitChildren,
            Err(failure) if failure.is_suspended() => Asked::Suspend,
            Err(failure) => match failure.pause() {
                Some(pause) => Asked::Delay { pause, reason: failure.reason().to_owned() },
                None => Asked::Fail(failure),
            },
        }
    }

    /// The command that settles the attempt; none if it is settled already.
    pub(crate) fn command(&self, fence: Fence) -> Option<Command> {
        Some(match self {
            Asked::Complete(result) => Complete { fence, result: result.clone() }.into(),
            Asked::Fail(failure) => failure.clone().into_command(fence).into(),
            Asked::Release => Release { fence }.into(),
            Asked::Delay { pause, .. } => {
                let delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                Delay { fence, delay_ms }.into()
            }
            Asked::WaitChildren => WaitChildren { fence }.into(),
            Asked::Suspend => return None,
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

    pub(crate) fn tell(&self, event: &T) {
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
