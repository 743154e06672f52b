//! The output of the process, one line each, in the order of events.
//!
//! An answer that the parent has read was acknowledged; a submitted command may have happened.

use serde::{Deserialize, Serialize};
use windlass_core::Settled;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The engine runs.
    Ready,
    /// The step to be killed at is reached.
    At {
        step: String,
    },
    CreateRequested(TaskSpec),
    Created {
        spec: TaskSpec,
        stored_id: String,
        duplicate: bool,
    },
    /// Printed before the attempt does anything.
    Began {
        id: String,
        epoch: u64,
        attempt: u32,
    },
    SettleRequested(Act),
    /// A worker does not pass the answer on.
    Settled {
        act: Act,
        answer: Option<Settled>,
    },
    Rejected {
        act: Act,
        code: String,
    },
    /// Everything was closed in order.
    Closed,
    /// An unexpected event.
    Unexpected(String),
}

/// A task to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskSpec {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) lane: String,
    pub(crate) plan: Plan,
    pub(crate) max_attempts: u32,
}

/// What becomes of a task without faults. Sent as the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Plan {
    Complete,
    /// Takes longer than a lease without renewals.
    CompleteSlowly,
    CompleteSecond,
    /// Released once, in the callers' lane.
    ReleaseFirst,
    FailAlways,
    NonRetryable,
    /// Settled only after the lease has expired, in the callers' lane.
    Stall,
}

/// A settle under a fence. Its result or reason is its [`Act::mark`], which is unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Act {
    pub(crate) id: String,
    pub(crate) epoch: u64,
    pub(crate) how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Complete,
    Fail,
    NonRetryable,
    Release,
}

impl Act {
    pub(crate) fn mark(&self) -> String {
        format!("{}/{}", self.id, self.epoch)
    }

    /// Whether it ends its task: a repeated settle then always gets the same answer.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.how, How::Complete | How::NonRetryable)
    }
}
