use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::concurrency_limit::LimitKey;
use crate::digest::Digest;
use crate::limits;
use crate::name::{Kind, LaneName, TaskId, Tenant};
use crate::payload::{PayloadKey, Slot};
use crate::record::{Record, StoredRecord};
use crate::rejection::Rejection;
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::task::{
    Lease, Lifecycle, Policy, Progress, Readiness, Resumption, Route, Settle, TaskList,
};
use crate::time::Timestamp;
use crate::workflow::WorkflowState;

/// Omits default values from bodies to keep them short.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A unit of work that can be claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub tenant: Tenant,
    pub id: TaskId,
    pub kind: Kind,
    pub lane: LaneName,
    #[serde(default, skip_serializing_if = "is_default")]
    pub route: Route,
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// When its current execution started.
    pub started_at: Timestamp,
    pub fingerprint: Digest,
    #[serde(default = "Policy::stored_default", skip_serializing_if = "Policy::is_stored_default")]
    pub policy: Policy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The number of the current execution, from 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub execution: u32,
    /// Incremented by every claim; starts at the creation time in microseconds so that fences are
    /// never reused, even after an id is deleted and recreated.
    #[serde(default)]
    pub epoch: u64,
    /// The number of claims.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claims: u32,
    /// Attempts begun in this execution, without released or snoozed ones.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts: u32,
    /// Leases lost in this execution.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost_leases: u32,
    pub lifecycle: Lifecycle,
    /// The progress that the current or last attempt reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// When the sweep checks this task: never later than necessary.
    #[serde(default, skip_serializing_if = "is_default")]
    pub due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_settle: Option<Settle>,
    /// The size of the input payload, so that readers know it before they load it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// The task that created it, and that may wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// The concurrency key, session or affinity that limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<LimitKey>,
    /// Why it was last resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumption: Option<Resumption>,
    /// It has or had a message or a waitpoint, so that its mailbox must be deleted with it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_mailbox: bool,
    /// It has or had an effect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_effects: bool,
    /// It has or had a child. Cancellation is passed on to children.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_children: bool,
    /// The workflow state; set if its handler is replayed over a history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Box<WorkflowState>>,
    /// Its step number in its parent, a workflow that receives its completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The executions that have a result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<u32>,
}

/// The key of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey {
    pub tenant: Tenant,
    pub id: TaskId,
}

/// The fence of a lease holder: writes are accepted only under the epoch of its claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fence {
    pub task: TaskKey,
    pub epoch: u64,
}

impl TaskKey {
    pub fn new(tenant: &Tenant, id: &TaskId) -> Self {
        Self { tenant: tenant.clone(), id: id.clone() }
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::TASK_ID.check(self.id.as_str())
    }

    pub fn row_key(&self) -> RowKey {
        Task::row_key(vec![(&self.tenant).into(), (&self.id).into()])
    }
}

impl Task {
    pub fn task_key(&self) -> TaskKey {
        TaskKey::new(&self.tenant, &self.id)
    }

    pub fn fence(&self) -> Fence {
        Fence { task: self.task_key(), epoch: self.epoch }
    }

    /// The order in which a lane leases its tasks.
    pub(crate) fn rank(&self) -> i64 {
        -i64::from(self.priority)
    }

    /// Since when a claim can find it.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        match &self.lifecycle {
            Lifecycle::Waiting(readiness) | Lifecycle::Granted { readiness, .. } => {
                Some(readiness.ready_at)
            }
            _ => None,
        }
    }

    /// The queue that it is in: that of its route, or of the worker it is granted to.
    pub(crate) fn ready_route(&self) -> Route {
        match &self.lifecycle {
            Lifecycle::Granted { worker, .. } => Route::granted_to(worker),
            _ => self.route.clone(),
        }
    }

    /// The key of its task list, and its place in it, if it is in a list.
    fn list(&self) -> Option<(String, Timestamp)> {
        let (list, listed_at) = match &self.lifecycle {
            Lifecycle::Blocked(readiness) => {
                (TaskList::LimitWaiting(self.limit_key.as_ref()?), readiness.ready_at)
            }
            Lifecycle::Waiting(readiness) | Lifecycle::Granted { readiness, .. } => {
                (TaskList::LimitAdmitted(self.limit_key.as_ref()?), readiness.ready_at)
            }
            Lifecycle::Active(lease) if lease.registered => {
                (TaskList::HeldBy(&lease.worker), Timestamp::default())
            }
            _ => return None,
        };
        Some((list.key(), listed_at))
    }

    /// Whether it can be claimed. A ready task may be past its deadline and not swept yet. A task
    /// without attempts left is damaged and is skipped.
    pub(crate) fn is_claimable(&self, now: Timestamp) -> bool {
        let continues_attempt =
            self.lifecycle.readiness().is_some_and(|it| it.suspended_attempt.is_some());
        !self.is_past_deadline(now) && (continues_attempt || self.attempts_left())
    }

    pub(crate) fn is_past_deadline(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The earliest time at which the sweep must check this task.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let own = match &self.lifecycle {
            Lifecycle::Waiting(_) | Lifecycle::Blocked(_) | Lifecycle::WaitingChildren { .. } => {
                None
            }
            Lifecycle::Granted { until, .. } => *until,
            Lifecycle::Delayed { until, .. } => Some(*until),
            Lifecycle::Active(lease) => Some(lease.due_at()),
            Lifecycle::Suspended(suspension) => suspension.timeout.map(|timeout| timeout.at),
            Lifecycle::Completed { at }
            | Lifecycle::Failed { at, .. }
            | Lifecycle::Cancelled { at, .. }
            | Lifecycle::Expired { at } => {
                let retention_ms = if self.is_activity() { 0 } else { self.policy.retention_ms };
                return Some(at.plus_ms(retention_ms));
            }
        };
        own.into_iter().chain(self.deadline).min()
    }

    pub(crate) fn count_attempt(&mut self) {
        self.attempts += 1;
    }

    pub(crate) fn count_unbegun_attempt(&mut self) {
        if let Lifecycle::Active(Lease { attempt: None, .. }) = &self.lifecycle {
            self.count_attempt();
        }
    }

    /// Uncounts the current attempt, which was released without a result.
    pub(crate) fn uncount_attempt(&mut self) {
        if let Lifecycle::Active(Lease { attempt: Some(_), .. }) = &self.lifecycle {
            self.attempts -= 1;
        }
    }

    /// Makes the task ready at `until` without counting an attempt. An attempt that began under an
    /// earlier lease continues with the next one; any other attempt is discarded.
    pub(crate) fn snooze(&mut self, until: Timestamp, now: Timestamp) {
        let suspended_attempt = match &self.lifecycle {
            Lifecycle::Active(Lease { resumed: true, attempt: Some(attempt), .. }) => {
                Some(attempt.to_suspended(now))
            }
            _ => {
                self.uncount_attempt();
                None
            }
        };
        self.lifecycle = if until <= now {
            Lifecycle::Waiting(Readiness { ready_at: now, lost_epoch: None, suspended_attempt })
        } else {
            Lifecycle::Delayed { until, after: None, suspended_attempt }
        };
    }

    /// The deadline of an execution that starts at `now`: the same duration as that of the first.
    pub(crate) fn restarted_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let deadline = self.deadline?;
        Some(now.plus_ms(self.started_at.ms_until(deadline)))
    }

    /// The key of its input payload. Each execution of a workflow has its own.
    pub fn input_key(&self) -> Option<PayloadKey> {
        let execution = if self.workflow.is_some() { self.execution } else { 0 };
        self.input_bytes.map(|_| self.payload_key(execution, Slot::INPUT))
    }

    /// The key of a row of the history of this execution.
    pub fn turn_key(&self, turn: u32) -> PayloadKey {
        self.payload_key(self.execution, Slot::turn(turn))
    }

    /// The key of the messages carried over from the previous execution.
    pub fn carried_key(&self) -> Option<PayloadKey> {
        let has_carried =
            self.workflow.as_ref().is_some_and(|workflow| workflow.has_carried_messages);
        has_carried.then(|| self.payload_key(self.execution, Slot::CARRIED))
    }

    /// Whether it is an activity: a step that is not a workflow. It is deleted when it ends.
    pub(crate) fn is_activity(&self) -> bool {
        self.step.is_some() && self.workflow.is_none()
    }

    /// The key of the result of its current execution.
    pub fn result_key(&self) -> Option<PayloadKey> {
        let there = self.results.contains(&self.execution);
        there.then(|| self.payload_key(self.execution, Slot::RESULT))
    }

    pub(crate) fn payload_key(&self, execution: u32, slot: Slot) -> PayloadKey {
        PayloadKey { tenant: self.tenant.clone(), task: self.id.clone(), execution, slot }
    }

    /// All payloads that are deleted with the task.
    pub(crate) fn payload_keys(&self) -> Vec<PayloadKey> {
        // The result of an activity is deleted with its completion message.
        let results = self.results.iter().filter(|_| !self.is_activity());
        let results = results.map(|&g| self.payload_key(g, Slot::RESULT));
        self.input_key().into_iter().chain(results).collect()
    }

    /// The open children of a task without a pending cancellation request.
    pub(crate) fn open_children(tenant: &Tenant, parent: &TaskId) -> Range {
        let prefix = vec![tenant.into(), parent.into()];
        Range { index: Index::TaskOpenChild, prefix, until: None }
    }

    pub(crate) fn ready_in(tenant: &Tenant, lane: &LaneName, route: &Route) -> Range {
        Range {
            index: Index::TaskReady,
            prefix: vec![tenant.into(), lane.into(), route.into()],
            until: None,
        }
    }
}

impl Record for Task {
    const SPEC: TableSpec = TableSpec {
        name: "task",
        key: &["tenant", "id"],
        columns: &[
            "kind",
            "lane",
            "route",
            "state",
            "rank",
            "ready_at",
            "due_at",
            "created_at",
            "ended_at",
            "list",
            "listed_at",
            "parent",
            "open_parent",
        ],
        numbers: &["rank", "ready_at", "due_at", "created_at", "ended_at", "listed_at"],
        indexes: &[
            IndexSpec {
                index: Index::TaskReady,
                columns: &["tenant", "lane", "route", "rank", "ready_at", "id"],
                indexed_when: "ready_at",
            },
            IndexSpec {
                index: Index::TaskDue,
                columns: &["due_at", "tenant", "id"],
                indexed_when: "due_at",
            },
            IndexSpec {
                index: Index::TaskList,
                columns: &["tenant", "list", "rank", "listed_at", "id"],
                indexed_when: "list",
            },
            IndexSpec {
                index: Index::TaskOpenChild,
                columns: &["tenant", "open_parent", "id"],
                indexed_when: "open_parent",
            },
        ],
        list_indexes: &["state", "parent"],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.id).into()]
    }

    fn columns(&self) -> Vec<Value> {
        let list = self.list();
        let open = self.lifecycle.ended_at().is_none();
        let is_cancelled =
            self.workflow.as_ref().is_some_and(|state| state.cancel_reason.is_some());
        vec![
            (&self.kind).into(),
            (&self.lane).into(),
            (&self.ready_route()).into(),
            self.lifecycle.public().value(),
            self.rank().into(),
            self.ready_at().into(),
            self.due_at.into(),
            self.created_at.into(),
            self.lifecycle.ended_at().into(),
            list.as_ref().map(|(list, _)| list.as_str()).into(),
            list.as_ref().map(|(_, listed_at)| *listed_at).into(),
            self.parent.as_ref().into(),
            self.parent.as_ref().filter(|_| open && !is_cancelled).into(),
        ]
    }
}
