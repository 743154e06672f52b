use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Complete, Delay, Release, WaitChildren};
use windlass_core::{Command, Fence, Kind, LaneName, Payload, Rejection};
use windlass_engine::Error;

use crate::failure::Failure;
use crate::handler::Handled;

/// What came of one attempt; see [`crate::Worker::on_settled`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Settlement {
    /// Task and epoch: they name the attempt for good.
    pub fence: Fence,
    pub kind: Kind,
    pub lane: LaneName,
    /// Which attempt it was, from one.
    pub attempt: u32,
    /// What the store was asked to do; none when there was no right to ask for anything.
    pub asked: Option<Asked>,
    pub answer: Answer,
    /// From the start of the attempt to the answer.
    pub took: Duration,
}

/// What a worker asks for at the end of an attempt.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The handler succeeded, with this result.
    Complete(Option<Payload>),
    Fail(Failure),
    /// Give the task back, the attempt not counted.
    Release,
    /// Put the task off for so long, the attempt not counted.
    Delay {
        pause: Duration,
        reason: String,
    },
    /// Wait for the children of the task; the same attempt goes on after that.
    WaitChildren,
    /// The handler has suspended the task: the lease ended with that.
    Suspend,
}

/// What came of what was asked.
#[derive(Debug)]
pub enum Answer {
    /// It is done, durably.
    Settled,
    /// It was refused, as when the task was cancelled on the way.
    Refused(Error),
    /// The lease was over before there was an answer. What was asked may be done or not.
    LeaseOver,
    /// The lease was lost while the handler ran. It was told to stop, and nothing was asked.
    Lost(Rejection),
}

impl Answer {
    pub fn is_settled(&self) -> bool {
        matches!(self, Answer::Settled)
    }

    /// The stable name of why it is not settled.
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
            Answer::LeaseOver => f.write_str("the lease was over before it could be settled"),
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

    /// The command that settles the attempt; none if it is settled.
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

/// A function that is called with every event of a kind, if there is one. Clones share it.
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
