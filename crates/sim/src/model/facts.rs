use std::collections::BTreeSet;

use windlass_core::{
    Condition, CountedByQuota, Kind, LaneState, PublicState, Settled, TaskId, Timeout, Timestamp,
};

/// The state of a task, as far as the log shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) state: State,
    pub(crate) kind: Option<Kind>,
    /// Which request created it; none before a record has shown it.
    pub(crate) variant: Option<u8>,
    pub(crate) execution: u32,
    /// The epoch of its last claim; none before the first.
    pub(crate) epoch: Option<u64>,
    pub(crate) attempts: u32,
    pub(crate) lost_leases: u32,
    pub(crate) priority: i32,
    /// The epoch of the last lease that its holder settled.
    pub(crate) settled: Option<u64>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// Its position while it is ready.
    pub(crate) position: Position,
    pub(crate) parent: Option<TaskId>,
    /// Whether it ever had a child.
    pub(crate) has_children: bool,
    /// Its children that have not ended.
    pub(crate) open: BTreeSet<TaskId>,
    /// The open children to be cancelled, because the task was cancelled or expired.
    pub(crate) doomed: BTreeSet<TaskId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    /// `lost` is the lease that expired, if that made the task ready.
    Waiting {
        lost: Option<u64>,
        since: Timestamp,
        /// The attempt to resume, if any.
        paused: Option<PausedAttempt>,
    },
    Delayed {
        until: Timestamp,
        /// The attempt to resume after the delay, if any.
        paused: Option<PausedAttempt>,
    },
    Active(Hold),
    Suspended(Suspension),
    /// Waits until its last child has ended.
    Gathering {
        since: Timestamp,
        paused: PausedAttempt,
    },
    Ended(PublicState),
}

/// The position of a task that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Not observed yet: in the queue of its lane, or blocked by its concurrency limit.
    Unknown,
    Queued,
    /// Blocked by its concurrency limit.
    Blocked,
    /// Granted to one worker: by a session, or until a time.
    Granted {
        worker: String,
        until: Option<Timestamp>,
    },
}

/// A live lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) epoch: u64,
    /// When its attempt began; none before that.
    pub(crate) began_at: Option<Timestamp>,
    /// When that attempt times out.
    pub(crate) over_at: Option<Timestamp>,
    /// Whether that attempt began under an earlier lease.
    pub(crate) resumed: bool,
    /// Whether it ends when its holder is declared dead.
    pub(crate) registered: bool,
    /// Whether the limit of its lane counts it.
    pub(crate) counted: bool,
    /// The quotas that count it.
    pub(crate) metered: CountedByQuota,
    /// Whether the tenant's quota may not count it, because the quota was set after the claim.
    pub(crate) may_be_unmetered: bool,
    pub(crate) expires_at: Timestamp,
}

/// An attempt that has begun and has no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PausedAttempt {
    pub(crate) began_at: Timestamp,
    /// The rest of its time limit.
    pub(crate) left_ms: Option<u64>,
}

/// A suspension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspension {
    pub(crate) since: Timestamp,
    pub(crate) paused: PausedAttempt,
    /// Its condition; none before the record has shown it.
    pub(crate) condition: Option<Condition>,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) escalated: bool,
}

impl State {
    pub(crate) fn waiting(since: Timestamp) -> Self {
        State::Waiting { lost: None, since, paused: None }
    }
}

impl Facts {
    pub(crate) fn absent() -> Self {
        Self {
            state: State::Absent,
            kind: None,
            variant: None,
            execution: 0,
            epoch: None,
            attempts: 0,
            lost_leases: 0,
            priority: 0,
            settled: None,
            deadline: None,
            created_at: None,
            ended_at: None,
            position: Position::Unknown,
            parent: None,
            has_children: false,
            open: BTreeSet::new(),
            doomed: BTreeSet::new(),
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.state != State::Absent
    }

    pub(crate) fn ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    pub(crate) fn hold(&self) -> Option<&Hold> {
        match &self.state {
            State::Active(hold) => Some(hold),
            _ => None,
        }
    }

    pub(crate) fn public(&self) -> Option<PublicState> {
        match &self.state {
            State::Absent => None,
            State::Waiting { .. } if self.position == Position::Blocked => {
                Some(PublicState::Blocked)
            }
            State::Waiting { paused: Some(_), .. } => Some(PublicState::Resumable),
            State::Waiting { .. } => Some(PublicState::Waiting),
            State::Suspended(_) => Some(PublicState::Suspended),
            State::Gathering { .. } => Some(PublicState::WaitingChildren),
            State::Delayed { .. } => Some(PublicState::Delayed),
            State::Active(_) => Some(PublicState::Active),
            State::Ended(state) => Some(*state),
        }
    }

    /// Delays the task until `at`, or makes it ready if that time has passed.
    pub(crate) fn rest(&mut self, at: Timestamp, now: Timestamp, paused: Option<PausedAttempt>) {
        self.state = if at <= now {
            State::Waiting { lost: None, since: now, paused }
        } else {
            State::Delayed { until: at, paused }
        };
    }
}

/// The values of a record over time, each with the first log event at which it holds.
#[derive(Clone, Debug)]
pub(crate) struct Track<T> {
    past: Vec<(u64, T)>,
}

impl<T: Clone> Track<T> {
    pub(crate) fn new(first: T) -> Self {
        Self { past: vec![(0, first)] }
    }

    pub(crate) fn last(&self) -> &T {
        &self.past[self.past.len() - 1].1
    }

    pub(crate) fn push(&mut self, seq: u64, next: T) {
        self.past.push((seq, next));
    }

    /// Completes the present value without adding a past one.
    pub(crate) fn amend(&mut self, amend: impl FnOnce(&mut T)) {
        let last = self.past.len() - 1;
        amend(&mut self.past[last].1);
    }

    /// All values since the log was at `seq`.
    pub(crate) fn since(&self, seq: u64) -> &[(u64, T)] {
        let first = self.past.partition_point(|(at, _)| *at <= seq).saturating_sub(1);
        &self.past[first..]
    }

    pub(crate) fn was(&self, seq: u64, test: impl Fn(&T) -> bool) -> bool {
        self.since(seq).iter().any(|(_, facts)| test(facts))
    }

    pub(crate) fn was_always(&self, seq: u64, test: impl Fn(&T) -> bool) -> bool {
        self.since(seq).iter().all(|(_, facts)| test(facts))
    }
}

/// The state of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneFacts {
    pub(crate) exists: bool,
    pub(crate) state: LaneState,
    /// Whether a limit was ever set: from then on its leases are counted.
    pub(crate) counts: bool,
    pub(crate) limit: Option<u32>,
    pub(crate) running: u32,
}

impl Default for LaneFacts {
    fn default() -> Self {
        let state = LaneState::Active;
        Self { exists: false, state, counts: false, limit: None, running: 0 }
    }
}

impl LaneFacts {
    pub(crate) fn takes(&self) -> bool {
        matches!(self.state, LaneState::Active | LaneState::Paused)
    }

    pub(crate) fn hands_out(&self) -> bool {
        matches!(self.state, LaneState::Active | LaneState::Draining)
    }
}

/// A settle that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettleSeen {
    /// None when the content was deleted before it could be read.
    pub(crate) content: Option<Content>,
    pub(crate) answer: Settled,
    pub(crate) seq: u64,
}

impl SettleSeen {
    /// Whether its content may be this.
    pub(crate) fn says(&self, content: &Content) -> bool {
        self.content.as_ref().is_none_or(|known| known == content)
    }
}

/// The content of a settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Complete(Option<Vec<u8>>),
    Fail(String),
    Delay { ms: u64 },
    Release,
    Cancel(String),
    Suspend(String),
    WaitChildren,
}
