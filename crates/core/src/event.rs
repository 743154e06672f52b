use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::command::QuotaScope;
use crate::lane::{Lane, LaneState};
use crate::name::{Kind, LaneName, TaskId, Tenant, WaitpointId, WorkerId};
use crate::rate::Rate;
use crate::task::{FailureClass, ResumeCause, SuspendReason, Task};
use crate::time::Timestamp;

/// A log event, written in the transaction of its change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub tenant: Tenant,
    pub lane: LaneName,
    /// The task that changed; none for a change of a lane.
    pub task: Option<(TaskId, Kind)>,
    /// The labels of the task, so that subscribers can filter by them after its deletion.
    pub labels: BTreeMap<String, String>,
    pub change: Change,
}

/// The kind of change, with its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Change {
    Created,
    /// `attempt` is set if the claim also began the attempt.
    Claimed {
        epoch: u64,
        worker: WorkerId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
    },
    Begun {
        epoch: u64,
        attempt: u32,
    },
    Renewed {
        epoch: u64,
        expires_at: Timestamp,
    },
    Progressed {
        epoch: u64,
        percent: u8,
        message: String,
    },
    Completed {
        epoch: u64,
    },
    RetryScheduled {
        class: FailureClass,
        reason: String,
        at: Timestamp,
    },
    Failed {
        class: FailureClass,
        reason: String,
    },
    Snoozed {
        until: Timestamp,
    },
    Released {
        epoch: u64,
    },
    Cancelled {
        reason: String,
    },
    Promoted,
    LeaseLost {
        epoch: u64,
        lost_leases: u32,
        #[serde(default, skip_serializing_if = "LeaseLoss::is_expired")]
        cause: LeaseLoss,
    },
    Expired,
    PriorityChanged {
        priority: i32,
    },
    Replayed {
        execution: u32,
    },
    /// A workflow continued as new: its next execution began.
    ContinuedAsNew {
        execution: u32,
    },
    Deleted,
    LaneStateChanged {
        state: LaneState,
    },
    LaneLimited {
        limit: Option<u32>,
    },
    /// A message became visible in the mailbox, perhaps through a waitpoint.
    Signalled {
        seq: u64,
        name: String,
        source: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waitpoint: Option<WaitpointId>,
    },
    WaitpointCreated {
        id: WaitpointId,
    },
    /// An external call is about to be made.
    EffectClaimed {
        provider: String,
        name: String,
    },
    /// The result of an external call was recorded.
    EffectSettled {
        provider: String,
        name: String,
    },
    /// The published status of a workflow changed. `revision` identifies the version of the status.
    StatusChanged {
        revision: u64,
    },
    Suspended {
        epoch: u64,
        reason: SuspendReason,
    },
    /// A part of a workflow turn was committed: the last part, unless `next` is `keeps_lease`.
    TurnCommitted {
        epoch: u64,
        /// The number of history rows of this execution before the commit.
        turn: u32,
        next: AfterTurn,
        /// The activities that the turn created. They have no `created` event.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        activities: Vec<TaskId>,
    },
    /// Cancellation of a workflow was requested. Its code is notified and may clean up first.
    CancelRequested {
        reason: String,
    },
    /// The condition of a suspension was met, possibly already when it was requested.
    Resumed {
        cause: ResumeCause,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The task waits for `open` children.
    WaitingChildren {
        epoch: u64,
        open: u32,
    },
    /// A concurrency slot became free: the task entered the queue of its lane.
    Unblocked,
    /// The concurrency limit was lowered: the task is blocked again.
    BlockedAgain,
    /// The task was granted to the owner of its session.
    SessionGranted {
        worker: WorkerId,
    },
    /// The grant to that worker has ended.
    GrantReleased {
        worker: WorkerId,
    },
    QuotaSet {
        scope: QuotaScope,
        limit: Option<u32>,
        rate: Option<Rate>,
    },
    Granted {
        worker: WorkerId,
        until: Timestamp,
    },
    GrantExpired {
        worker: WorkerId,
    },
    Revoked {
        epoch: u64,
        worker: WorkerId,
        reason: String,
    },
    /// No answer arrived before the timeout: an operator has to decide.
    Escalated,
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseLoss {
    /// The lease was not renewed in time.
    #[default]
    Expired,
    /// Its worker sent no heartbeat for so long that it was declared dead.
    WorkerDead,
    /// A heartbeat of its worker reported that the worker does not hold it.
    NotHeld,
}

impl LeaseLoss {
    fn is_expired(&self) -> bool {
        *self == LeaseLoss::Expired
    }
}

/// State of a workflow and its lease after the commit of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterTurn {
    /// The lease is retained: the turn has more parts to commit, or a message is visible.
    KeepsLease,
    /// The lease ends. The workflow becomes claimable when a message arrives.
    Waits,
    /// The lease ends and the next execution begins: a `continued_as_new` event follows.
    ContinuesAsNew,
    /// The lease and the workflow end: the event of that end follows.
    Ends,
}

impl AfterTurn {
    pub const fn as_str(self) -> &'static str {
        match self {
            AfterTurn::KeepsLease => "keeps_lease",
            AfterTurn::Waits => "waits",
            AfterTurn::ContinuesAsNew => "continues_as_new",
            AfterTurn::Ends => "ends",
        }
    }
}

/// Event category, by which subscribers filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventCategory {
    Task,
    Lease,
    Completion,
    Lane,
    Signal,
}

impl EventCategory {
    pub const fn as_str(self) -> &'static str {
        match self {
            EventCategory::Task => "task",
            EventCategory::Lease => "lease",
            EventCategory::Completion => "completion",
            EventCategory::Lane => "lane",
            EventCategory::Signal => "signal",
        }
    }
}

impl Change {
    /// Whether callers that wait for the end or the status of a task can ignore this change.
    pub const fn leaves_open(&self) -> bool {
        matches!(
            self,
            Change::Created
                | Change::Claimed { .. }
                | Change::Begun { .. }
                | Change::Renewed { .. }
                | Change::Progressed { .. }
                | Change::Signalled { .. }
                | Change::EffectClaimed { .. }
                | Change::EffectSettled { .. }
                | Change::TurnCommitted { .. }
                | Change::CancelRequested { .. }
        )
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Claimed { .. } => "claimed",
            Change::Begun { .. } => "begun",
            Change::Renewed { .. } => "renewed",
            Change::Progressed { .. } => "progressed",
            Change::Completed { .. } => "completed",
            Change::RetryScheduled { .. } => "retry_scheduled",
            Change::Failed { .. } => "failed",
            Change::Snoozed { .. } => "snoozed",
            Change::Released { .. } => "released",
            Change::Cancelled { .. } => "cancelled",
            Change::Promoted => "promoted",
            Change::LeaseLost { .. } => "lease_lost",
            Change::Expired => "expired",
            Change::PriorityChanged { .. } => "priority_changed",
            Change::Replayed { .. } => "replayed",
            Change::ContinuedAsNew { .. } => "continued_as_new",
            Change::Deleted => "deleted",
            Change::LaneStateChanged { .. } => "lane_state_changed",
            Change::LaneLimited { .. } => "lane_limited",
            Change::WaitingChildren { .. } => "waiting_children",
            Change::Unblocked => "unblocked",
            Change::BlockedAgain => "blocked_again",
            Change::SessionGranted { .. } => "session_granted",
            Change::GrantReleased { .. } => "grant_released",
            Change::QuotaSet { .. } => "quota_set",
            Change::Granted { .. } => "granted",
            Change::GrantExpired { .. } => "grant_expired",
            Change::Revoked { .. } => "revoked",
            Change::Signalled { .. } => "signalled",
            Change::WaitpointCreated { .. } => "waitpoint_created",
            Change::EffectClaimed { .. } => "effect_claimed",
            Change::EffectSettled { .. } => "effect_settled",
            Change::StatusChanged { .. } => "status_changed",
            Change::Suspended { .. } => "suspended",
            Change::TurnCommitted { .. } => "turn_committed",
            Change::CancelRequested { .. } => "cancel_requested",
            Change::Resumed { .. } => "resumed",
            Change::Escalated => "escalated",
        }
    }

    /// The change as JSON.
    pub fn body(&self) -> String {
        serde_json::to_string(self).expect("core types serialize to JSON")
    }

    pub const fn category(&self) -> EventCategory {
        match self {
            Change::Created
            | Change::Progressed { .. }
            | Change::Snoozed { .. }
            | Change::Promoted
            | Change::PriorityChanged { .. }
            | Change::Replayed { .. }
            | Change::ContinuedAsNew { .. }
            | Change::Deleted
            | Change::WaitingChildren { .. } => EventCategory::Task,
            Change::Claimed { .. }
            | Change::Begun { .. }
            | Change::Renewed { .. }
            | Change::Released { .. }
            | Change::TurnCommitted { .. }
            | Change::LeaseLost { .. }
            | Change::Granted { .. }
            | Change::SessionGranted { .. }
            | Change::GrantReleased { .. }
            | Change::GrantExpired { .. }
            | Change::Revoked { .. } => EventCategory::Lease,
            Change::Completed { .. }
            | Change::RetryScheduled { .. }
            | Change::Failed { .. }
            | Change::Cancelled { .. }
            | Change::Expired => EventCategory::Completion,
            Change::LaneStateChanged { .. } | Change::LaneLimited { .. } => EventCategory::Lane,
            Change::Unblocked
            | Change::BlockedAgain
            | Change::EffectClaimed { .. }
            | Change::EffectSettled { .. }
            | Change::CancelRequested { .. }
            | Change::StatusChanged { .. } => EventCategory::Task,
            Change::QuotaSet { .. } => EventCategory::Lane,
            Change::Signalled { .. }
            | Change::WaitpointCreated { .. }
            | Change::Suspended { .. }
            | Change::Resumed { .. }
            | Change::Escalated => EventCategory::Signal,
        }
    }
}

impl Event {
    pub(crate) fn of_lane(lane: &Lane, at: Timestamp, change: Change) -> Self {
        Self {
            at,
            tenant: lane.tenant.clone(),
            lane: lane.name.clone(),
            task: None,
            labels: BTreeMap::new(),
            change,
        }
    }

    pub(crate) fn of_task(task: &Task, at: Timestamp, change: Change) -> Self {
        Self {
            at,
            tenant: task.tenant.clone(),
            lane: task.lane.clone(),
            task: Some((task.id.clone(), task.kind.clone())),
            labels: task.labels.clone(),
            change,
        }
    }

    /// The change as JSON, with the labels of the task if it has any.
    pub fn body(&self) -> String {
        if self.labels.is_empty() {
            return self.change.body();
        }
        let labelled = Labelled { change: &self.change, labels: &self.labels };
        serde_json::to_string(&labelled).expect("core types serialize to JSON")
    }
}

#[derive(Serialize)]
struct Labelled<'a> {
    #[serde(flatten)]
    change: &'a Change,
    labels: &'a BTreeMap<String, String>,
}

/// A log event as it is read back. Events of a newer version are passed through unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEvent {
    pub seq: u64,
    pub at: Timestamp,
    pub tenant: Tenant,
    pub lane: LaneName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    pub category: String,
    pub name: String,
    /// The change, as JSON.
    pub body: String,
}

impl LogEvent {
    pub fn new(seq: u64, event: &Event) -> Self {
        Self {
            seq,
            at: event.at,
            tenant: event.tenant.clone(),
            lane: event.lane.clone(),
            task: event.task.as_ref().map(|(id, _)| id.clone()),
            kind: event.task.as_ref().map(|(_, kind)| kind.clone()),
            category: event.change.category().as_str().to_owned(),
            name: event.change.name().to_owned(),
            body: event.body(),
        }
    }

    /// The decoded change; none if this version does not know it.
    pub fn change(&self) -> Option<Change> {
        serde_json::from_str(&self.body).ok()
    }

    /// The labels of the task when the event was written.
    pub fn labels(&self) -> BTreeMap<String, String> {
        #[derive(Default, Deserialize)]
        struct Labels {
            #[serde(default)]
            labels: BTreeMap<String, String>,
        }
        serde_json::from_str::<Labels>(&self.body).unwrap_or_default().labels
    }
}
