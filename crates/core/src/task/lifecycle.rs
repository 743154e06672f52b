use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::WorkerId;
use crate::row::Value;
use crate::task::{FailureClass, Suspension};
use crate::time::Timestamp;
use crate::worker::LeaseRequest;

/// The state of a task, with the data of that state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Lifecycle {
    /// In the queue of its lane, claimable by any worker that meets its route.
    Waiting(Readiness),
    /// Blocked by its concurrency limit, until a slot is free.
    Blocked(Readiness),
    /// Granted to one worker: by the session that the worker owns, or until a time.
    Granted {
        #[serde(flatten)]
        readiness: Readiness,
        worker: WorkerId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    Delayed {
        until: Timestamp,
        /// Set during the backoff before a retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<FailureClass>,
        /// The attempt that continues after the delay, if it was resumed and snoozed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        suspended_attempt: Option<SuspendedAttempt>,
    },
    Active(Lease),
    /// Until a condition over its mailbox is met, or a timeout.
    Suspended(Suspension),
    /// Until its last open child has ended.
    WaitingChildren {
        since: Timestamp,
        suspended_attempt: SuspendedAttempt,
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

/// Since when, and how, a task became ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    pub ready_at: Timestamp,
    /// The epoch of the expired lease that made it ready again, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_epoch: Option<u64>,
    /// The attempt that the next claim continues, if it was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_attempt: Option<SuspendedAttempt>,
}

/// A begun attempt that is not under a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendedAttempt {
    pub number: u32,
    pub began_at: Timestamp,
    /// The rest of its timeout, if any, which does not count down meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_left_ms: Option<u64>,
}

/// The exclusive right of a worker to run a task until it expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub worker: WorkerId,
    pub expires_at: Timestamp,
    /// The attempt, once it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<ActiveAttempt>,
    /// Whether the attempt began under an earlier lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// Whether the concurrency limit of the lane counts this lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted_by_lane_limit: bool,
    /// The quotas that count this lease.
    #[serde(default, skip_serializing_if = "CountedByQuota::is_default")]
    pub counted_by_quota: CountedByQuota,
    /// The in-flight messages, if the claim requested them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<u64>,
    /// Whether the holder is registered: the lease then ends when the worker is declared dead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub registered: bool,
    /// The lease request of the worker, if the worker numbers its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<LeaseRequest>,
    /// Whether it was granted by the turn that created the task, and returned with that turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eager: bool,
}

/// The quotas that count a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedByQuota {
    pub lane: bool,
    pub tenant: bool,
}

impl CountedByQuota {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl ActiveAttempt {
    /// The attempt without its lease.
    pub(crate) fn to_suspended(&self, now: Timestamp) -> SuspendedAttempt {
        SuspendedAttempt {
            number: self.number,
            began_at: self.began_at,
            timeout_left_ms: self.timeout_at.map(|timeout_at| now.ms_until(timeout_at)),
        }
    }
}

impl SuspendedAttempt {
    /// The attempt under its next lease.
    pub(crate) fn to_active(&self, now: Timestamp) -> ActiveAttempt {
        ActiveAttempt {
            number: self.number,
            began_at: self.began_at,
            timeout_at: self.timeout_left_ms.map(|ms| now.plus_ms(ms)),
        }
    }
}

/// An attempt under a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveAttempt {
    pub number: u32,
    pub began_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_at: Option<Timestamp>,
}

/// The progress that the handler reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub percent: u8,
    pub message: String,
    pub at: Timestamp,
}

/// The last settle of a task, stored so that a repeat gets the same response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub epoch: u64,
    pub digest: Digest,
    pub result: Settled,
}

/// The result of a settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    Completed,
    RetryAt(Timestamp),
    Failed,
    SnoozedUntil(Timestamp),
    Released,
    Cancelled,
    Suspended,
    WaitingChildren,
    ContinuedAsNew,
}

/// The public name of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublicState {
    Waiting,
    /// Waiting, with an attempt to continue.
    Resumable,
    /// Blocked by a concurrency limit.
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
    /// The name as a column value. Shared, because every task has one.
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
        Lifecycle::Waiting(Readiness { ready_at, lost_epoch: None, suspended_attempt: None })
    }

    /// Waiting for a worker to continue an attempt.
    pub(crate) const fn resumed(attempt: SuspendedAttempt, ready_at: Timestamp) -> Self {
        Lifecycle::Waiting(Readiness {
            ready_at,
            lost_epoch: None,
            suspended_attempt: Some(attempt),
        })
    }

    /// Since when, and how, it became ready; none if it is not ready.
    pub const fn readiness(&self) -> Option<&Readiness> {
        match self {
            Lifecycle::Waiting(readiness)
            | Lifecycle::Blocked(readiness)
            | Lifecycle::Granted { readiness, .. } => Some(readiness),
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

    /// Ready at `until`, or immediately if that has passed.
    pub(crate) fn ready_or_delayed(
        until: Timestamp,
        after: Option<FailureClass>,
        now: Timestamp,
    ) -> Self {
        if until <= now {
            return Lifecycle::waiting(now);
        }
        Lifecycle::Delayed { until, after, suspended_attempt: None }
    }

    pub const fn public(&self) -> PublicState {
        match self {
            Lifecycle::Waiting(readiness) | Lifecycle::Granted { readiness, .. } => {
                match readiness.suspended_attempt {
                    Some(_) => PublicState::Resumable,
                    None => PublicState::Waiting,
                }
            }
            Lifecycle::Blocked(_) => PublicState::Blocked,
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

    /// When it ended; none while it is open.
    pub const fn ended_at(&self) -> Option<Timestamp> {
        match self {
            Lifecycle::Waiting(_)
            | Lifecycle::Blocked(_)
            | Lifecycle::Granted { .. }
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
    /// The earliest time at which the sweep must check this lease.
    pub(crate) fn due_at(&self) -> Timestamp {
        let timeout_at = self.attempt.as_ref().and_then(|attempt| attempt.timeout_at);
        timeout_at.map_or(self.expires_at, |timeout_at| timeout_at.min(self.expires_at))
    }
}
