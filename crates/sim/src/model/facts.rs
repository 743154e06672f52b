use std::collections::BTreeSet;

use windlass_core::{
    Condition, Kind, LaneState, Metered, PublicState, Settled, TaskId, Timeout, Timestamp,
};

/// Where a task stands, as far as the log tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) state: State,
    pub(crate) kind: Option<Kind>,
    /// Which request made it; none before a record has shown it.
    pub(crate) variant: Option<u8>,
    pub(crate) generation: u32,
    /// The epoch of its last claim; none before the first.
    pub(crate) epoch: Option<u64>,
    pub(crate) attempts: u32,
    pub(crate) lost_leases: u32,
    pub(crate) priority: i32,
    /// The epoch of the last lease that its holder ended.
    pub(crate) settled: Option<u64>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// Where it stands while it waits for its turn.
    pub(crate) stand: Stand,
    pub(crate) parent: Option<TaskId>,
    /// Whether it ever had a child.
    pub(crate) has_children: bool,
    /// Its children that have not ended.
    pub(crate) open: BTreeSet<TaskId>,
    /// Those of them that are to be called off, as it was called off itself.
    pub(crate) doomed: BTreeSet<TaskId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    /// With the lease that ran out, if that is how it came here.
    Waiting {
        lost: Option<u64>,
        since: Timestamp,
        /// The attempt that goes on, if one does.
        pause: Option<Pause>,
    },
    Delayed {
        until: Timestamp,
        /// The attempt that goes on after that, if one does.
        pause: Option<Pause>,
    },
    Active(Hold),
    Suspended(Stay),
    /// Until its last child has ended.
    Gathering {
        since: Timestamp,
        pause: Pause,
    },
    Ended(PublicState),
}

/// Where a task stands that could run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Nobody has seen it yet: in the queue of its lane, or behind its gate.
    Unknown,
    Queue,
    /// Behind its gate.
    Behind,
    /// Kept for one worker, by a session or until a time.
    Kept {
        worker: String,
        until: Option<Timestamp>,
    },
}

/// A lease under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) epoch: u64,
    /// When its attempt began; none before that.
    pub(crate) began_at: Option<Timestamp>,
    /// When that attempt has taken as long as it may.
    pub(crate) over_at: Option<Timestamp>,
    /// Whether that attempt began under an earlier lease.
    pub(crate) resumed: bool,
    /// Whether it ends when its holder is taken for dead.
    pub(crate) registered: bool,
    /// Whether its lane counts it.
    pub(crate) counted: bool,
    /// Which quotas count it.
    pub(crate) metered: Metered,
    /// Whether the quota of its tenant may not count it, as it is so fresh.
    pub(crate) may_be_unmetered: bool,
    pub(crate) expires_at: Timestamp,
}

/// An attempt that has begun and that nobody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) began_at: Timestamp,
    /// How much of its time it has left.
    pub(crate) left_ms: Option<u64>,
}

/// A suspension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) since: Timestamp,
    pub(crate) pause: Pause,
    /// What it waits for; none before its record has shown it.
    pub(crate) condition: Option<Condition>,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) escalated: bool,
}

impl State {
    pub(crate) fn waiting(since: Timestamp) -> Self {
        State::Waiting { lost: None, since, pause: None }
    }
}

impl Facts {
    pub(crate) fn absent() -> Self {
        Self {
            state: State::Absent,
            kind: None,
            variant: None,
            generation: 0,
            epoch: None,
            attempts: 0,
            lost_leases: 0,
            priority: 0,
            settled: None,
            deadline: None,
            created_at: None,
            ended_at: None,
            stand: Stand::Unknown,
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
            State::Waiting { .. } if self.stand == Stand::Behind => Some(PublicState::Blocked),
            State::Waiting { pause: Some(_), .. } => Some(PublicState::Resumable),
            State::Waiting { .. } => Some(PublicState::Waiting),
            State::Suspended(_) => Some(PublicState::Suspended),
            State::Gathering { .. } => Some(PublicState::WaitingChildren),
            State::Delayed { .. } => Some(PublicState::Delayed),
            State::Active(_) => Some(PublicState::Active),
            State::Ended(state) => Some(*state),
        }
    }

    /// It rests until `at`, or not at all when that has come.
    pub(crate) fn rest(&mut self, at: Timestamp, now: Timestamp, pause: Option<Pause>) {
        self.state = if at <= now {
            State::Waiting { lost: None, since: now, pause }
        } else {
            State::Delayed { until: at, pause }
        };
    }
}

/// A thing over time: what it was after which entry of the log.
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

    /// Completes what is known of the present without making it past.
    pub(crate) fn amend(&mut self, amend: impl FnOnce(&mut T)) {
        let last = self.past.len() - 1;
        amend(&mut self.past[last].1);
    }

    /// Everything it was since the log had come to `seq`.
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

/// Where a lane stands.
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

/// A settle as it took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettleSeen {
    /// None when what was said was gone before it could be read.
    pub(crate) content: Option<Content>,
    pub(crate) answer: Settled,
    pub(crate) seq: u64,
}

impl SettleSeen {
    /// Whether it may have said this.
    pub(crate) fn says(&self, content: &Content) -> bool {
        self.content.as_ref().is_none_or(|known| known == content)
    }
}

/// What a holder said when it ended its lease.
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
