use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::WorkerId;
use crate::row::Value;
use crate::task::{FailureClass, Suspension};
use crate::time::Timestamp;
use crate::worker::LeaseRequest;

/// Where a task stands. A state carries what only that state has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Lifecycle {
    /// In its lane's queue: the next worker that can serve it takes it.
    Waiting(Turn),
    /// Behind its gate, which lets it into the queue when there is room.
    Gated(Turn),
    /// Kept for one worker: by the session that the worker owns, or until a time by a grant.
    Reserved {
        #[serde(flatten)]
        turn: Turn,
        worker: WorkerId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    Delayed {
        until: Timestamp,
        /// Set when this is the pause before a retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<FailureClass>,
        /// The attempt that goes on after that, if it was resumed and put off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paused: Option<Paused>,
    },
    Active(Lease),
    /// Until a condition over its mailbox holds, or a time comes.
    Suspended(Suspension),
    /// Until the last of its children has ended.
    WaitingChildren {
        since: Timestamp,
        paused: Paused,
    },
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

/// A task that could run, and how it came to that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub ready_at: Timestamp,
    /// The epoch of the lease that ran out and left it waiting, if that is how it came here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The attempt that goes on with the next claim, if it was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
}

/// An attempt that has begun and is not under a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    pub attempt: u32,
    pub began_at: Timestamp,
    /// How much of its time it has left, if its time is limited. It does not pass meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// The right to act on a task until a deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub worker: WorkerId,
    pub expires_at: Timestamp,
    /// The attempt, once it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Whether that attempt had begun under an earlier lease and goes on under this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// Whether the gate of its lane counts this lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
    /// Which quotas count this lease.
    #[serde(default, skip_serializing_if = "Metered::is_default")]
    pub metered: Metered,
    /// The messages that were there when it began, if its holder was to receive them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<u64>,
    /// Whether its holder is registered, so that the lease ends when the holder is taken for dead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub registered: bool,
    /// The request of the worker that it was granted to, if the worker numbers its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<LeaseRequest>,
    /// Whether it came with the turn that made the task: the answer to that is what tells of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eager: bool,
}

/// The quotas that count a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    pub lane: bool,
    pub tenant: bool,
}

impl Metered {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Run {
    /// The attempt without its lease.
    pub(crate) fn paused(&self, now: Timestamp) -> Paused {
        Paused {
            attempt: self.attempt,
            began_at: self.began_at,
            left_ms: self.timeout_at.map(|timeout_at| now.ms_until(timeout_at)),
        }
    }
}

impl Paused {
    /// The attempt under its next lease.
    pub(crate) fn run(&self, now: Timestamp) -> Run {
        Run {
            attempt: self.attempt,
            began_at: self.began_at,
            timeout_at: self.left_ms.map(|ms| now.plus_ms(ms)),
        }
    }
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
    Suspended,
    WaitingChildren,
}

/// The name of a state, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublicState {
    Waiting,
    /// Waiting, with an attempt that goes on.
    Resumable,
    /// Behind a gate.
    Blocked,
    Delayed,
    Active,
    Suspended,
    WaitingChildren,
    Completed,
    Failed,
    Cancelled,
    Expired,
}

impl PublicState {
    pub const ALL: &'static [PublicState] = &[
        PublicState::Waiting,
        PublicState::Resumable,
        PublicState::Blocked,
        PublicState::Delayed,
        PublicState::Active,
        PublicState::Suspended,
        PublicState::WaitingChildren,
        PublicState::Completed,
        PublicState::Failed,
        PublicState::Cancelled,
        PublicState::Expired,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            PublicState::Waiting => "waiting",
            PublicState::Resumable => "resumable",
            PublicState::Blocked => "blocked",
            PublicState::Delayed => "delayed",
            PublicState::Active => "active",
            PublicState::Suspended => "suspended",
            PublicState::WaitingChildren => "waiting_children",
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
        Lifecycle::Waiting(Turn { ready_at, lost: None, paused: None })
    }

    /// Waiting for a worker that goes on with an attempt.
    pub(crate) const fn resumed(paused: Paused, ready_at: Timestamp) -> Self {
        Lifecycle::Waiting(Turn { ready_at, lost: None, paused: Some(paused) })
    }

    /// How it came to wait for a worker, if that is what it does.
    pub const fn turn(&self) -> Option<&Turn> {
        match self {
            Lifecycle::Waiting(turn)
            | Lifecycle::Gated(turn)
            | Lifecycle::Reserved { turn, .. } => Some(turn),
            Lifecycle::Delayed { .. }
            | Lifecycle::Active(_)
            | Lifecycle::Suspended(_)
            | Lifecycle::WaitingChildren { .. }
            | Lifecycle::Completed { .. }
            | Lifecycle::Failed { .. }
            | Lifecycle::Cancelled { .. }
            | Lifecycle::Expired { .. } => None,
        }
    }

    /// Waiting from `until` on: at once when that has passed.
    pub(crate) fn resting(until: Timestamp, after: Option<FailureClass>, now: Timestamp) -> Self {
        if until <= now {
            return Lifecycle::waiting(now);
        }
        Lifecycle::Delayed { until, after, paused: None }
    }

    pub const fn public(&self) -> PublicState {
        match self {
            Lifecycle::Waiting(turn) | Lifecycle::Reserved { turn, .. } => match turn.paused {
                Some(_) => PublicState::Resumable,
                None => PublicState::Waiting,
            },
            Lifecycle::Gated(_) => PublicState::Blocked,
            Lifecycle::Delayed { .. } => PublicState::Delayed,
            Lifecycle::Active(_) => PublicState::Active,
            Lifecycle::Suspended(_) => PublicState::Suspended,
            Lifecycle::WaitingChildren { .. } => PublicState::WaitingChildren,
            Lifecycle::Completed { .. } => PublicState::Completed,
            Lifecycle::Failed { .. } => PublicState::Failed,
            Lifecycle::Cancelled { .. } => PublicState::Cancelled,
            Lifecycle::Expired { .. } => PublicState::Expired,
        }
    }

    /// When it ended; none while it has not.
    pub const fn ended_at(&self) -> Option<Timestamp> {
        match self {
            Lifecycle::Waiting(_)
            | Lifecycle::Gated(_)
            | Lifecycle::Reserved { .. }
            | Lifecycle::Delayed { .. }
            | Lifecycle::Active(_)
            | Lifecycle::Suspended(_)
            | Lifecycle::WaitingChildren { .. } => None,
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
