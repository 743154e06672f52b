use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{LaneName, TaskId, Tenant, WorkerId};
use crate::record::{Filed, Record};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::task::{Lease, Lifecycle, Offer, Task};
use crate::time::Timestamp;

/// A registered worker: what it offers, and when it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub tenant: Tenant,
    pub id: WorkerId,
    pub lanes: BTreeSet<LaneName>,
    pub offer: Offer,
    pub registered_at: Timestamp,
    pub seen_at: Timestamp,
    /// How often it is to be heard of.
    pub every_ms: u64,
    /// When it was found to be overdue. It has one more beat from then before it is taken for dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_at: Option<Timestamp>,
    /// When it needs the engine.
    pub due_at: Timestamp,
}

/// One request of a worker instance that may grant it leases. Kept in each lease it grants.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Drawn at random when a worker starts: processes may share the name of a worker.
    pub instance: u64,
    /// Rises with every request of the instance.
    pub number: u64,
}

/// Without the instance, which is random: a simulation prints the same twice.
impl fmt::Debug for LeaseRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseRequest").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The leases that a worker instance holds, as it reports them with a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldLeases {
    pub instance: u64,
    /// The worker waits for the answer to no request below this number. A lease that was granted
    /// to a later one may be on its way, and is not listed.
    pub answered_below: u64,
    /// Tasks with the epoch of their lease.
    pub leases: BTreeSet<(TaskId, u64)>,
}

impl HeldLeases {
    /// Whether the worker cannot know of this lease of its own: it was granted to a request that
    /// the worker has the answer to, or does not wait for, and it is not among those it holds.
    pub(crate) fn lacks(&self, task: &Task) -> bool {
        let Lifecycle::Active(Lease { request: Some(request), .. }) = &task.lifecycle else {
            return false;
        };
        request.instance == self.instance
            && request.number < self.answered_below
            && !self.leases.contains(&(task.id.clone(), task.epoch))
    }
}

impl Worker {
    pub fn key_of(tenant: &Tenant, id: &WorkerId) -> RowKey {
        Self::row_key(vec![tenant.into(), id.into()])
    }
}

impl Record for Worker {
    const SPEC: TableSpec = TableSpec {
        name: "worker",
        key: &["tenant", "id"],
        columns: &["seen_at", "due_at"],
        numbers: &["seen_at", "due_at"],
        indexes: &[IndexSpec {
            index: Index::WorkerDue,
            columns: &["due_at", "tenant", "id"],
            present: "due_at",
        }],
        listed_by: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.id).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.seen_at.into(), self.due_at.into()]
    }
}
