use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::WorkerId;
use crate::row::Value;
use crate::task::FailureClass;
use crate::time::Timestamp;

/// Where a task stands. A state carries what only that state has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Lifecycle {
    Waiting {
        ready_at: Timestamp,
        /// The epoch of the lease that ran out and left it waiting, if that is how it came here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<u64>,
    },
    Delayed {
        until: Timestamp,
        /// Set when this is the pause before a retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<FailureClass>,
    },
    Active(Lease),
    Completed {
        at: Timestamp,
    },
    Failed {
        at: Timestamp,
        class: FailureClass,
        reason: String,
    },
    Cancelled {
        at: Timestamp,
        reason: String,
    },
    Expired {
        at: Timestamp,
    },
}

/// The right to act on a task until a deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub worker: WorkerId,
    pub expires_at: Timestamp,
    /// The attempt, once it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Whether the gate of its lane counts this lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}

/// An attempt under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub attempt: u32,
    pub began_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_at: Option<Timestamp>,
}

/// How far an attempt is, in its handler's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub percent: u8,
    pub message: String,
    pub at: Timestamp,
}

/// The last settle of a task, remembered so that a repeated one gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub epoch: u64,
    pub digest: Digest,
    pub answer: Settled,
}

/// What a settle came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    Completed,
    RetryAt(Timestamp),
    Failed,
    DelayedUntil(Timestamp),
    Released,
    Cancelled,
}

/// The name of a state, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublicState {
    Waiting,
    Delayed,
    Active,
    Completed,
    Failed,
    Cancelled,
    Expired,
}

impl PublicState {
    pub const ALL: &'static [PublicState] = &[
        PublicState::Waiting,
        PublicState::Delayed,
        PublicState::Active,
        PublicState::Completed,
        PublicState::Failed,
        PublicState::Cancelled,
        PublicState::Expired,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            PublicState::Waiting => "waiting",
            PublicState::Delayed => "delayed",
            PublicState::Active => "active",
            PublicState::Completed => "completed",
            PublicState::Failed => "failed",
            PublicState::Cancelled => "cancelled",
            PublicState::Expired => "expired",
        }
    }
}

impl PublicState {
    /// The name as a column, shared: it is written with every task.
    pub(crate) fn value(self) -> Value {
        static NAMES: LazyLock<Vec<Arc<str>>> = LazyLock::new(|| {
            PublicState::ALL.iter().map(|state| Arc::from(state.as_str())).collect()
        });
        Value::Text(NAMES[self as usize].clone())
    }
}

impl fmt::Display for PublicState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Lifecycle {
    pub(crate) const fn waiting(ready_at: Timestamp) -> Self {
        Lifecycle::Waiting { ready_at, lost: None }
    }

    /// Waiting from `until` on: at once when that has passed.
    pub(crate) fn resting(until: Timestamp, after: Option<FailureClass>, now: Timestamp) -> Self {
        if until <= now { Lifecycle::waiting(now) } else { Lifecycle::Delayed { until, after } }
    }

    pub const fn public(&self) -> PublicState {
        match self {
            Lifecycle::Waiting { .. } => PublicState::Waiting,
            Lifecycle::Delayed { .. } => PublicState::Delayed,
            Lifecycle::Active(_) => PublicState::Active,
            Lifecycle::Completed { .. } => PublicState::Completed,
            Lifecycle::Failed { .. } => PublicState::Failed,
            Lifecycle::Cancelled { .. } => PublicState::Cancelled,
            Lifecycle::Expired { .. } => PublicState::Expired,
        }
    }

    /// When it ended; none while it has not.
    pub const fn ended_at(&self) -> Option<Timestamp> {
        match self {
            Lifecycle::Waiting { .. } | Lifecycle::Delayed { .. } | Lifecycle::Active(_) => None,
            Lifecycle::Completed { at }
            | Lifecycle::Failed { at, .. }
            | Lifecycle::Cancelled { at, .. }
            | Lifecycle::Expired { at } => Some(*at),
        }
    }
}

impl Lease {
    /// The earliest moment at which this lease needs the engine.
    pub(crate) fn due_at(&self) -> Timestamp {
        let timeout_at = self.run.as_ref().and_then(|run| run.timeout_at);
        timeout_at.map_or(self.expires_at, |timeout_at| timeout_at.min(self.expires_at))
    }
}
