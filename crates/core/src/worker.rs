use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{LaneName, TaskId, Tenant, WorkerId};
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::task::{Lease, Lifecycle, Task, WorkerCapabilities};
use crate::time::Timestamp;

/// A registered worker: its offer and its last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub tenant: Tenant,
    pub id: WorkerId,
    pub lanes: BTreeSet<LaneName>,
    pub capabilities: WorkerCapabilities,
    pub registered_at: Timestamp,
    pub seen_at: Timestamp,
    /// The heartbeat interval.
    pub heartbeat_interval_ms: u64,
    /// When it was marked suspect. It is declared dead after one more heartbeat interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect_at: Option<Timestamp>,
    /// When the sweep must check it.
    pub due_at: Timestamp,
}

/// A request of a worker instance that may grant leases. Stored in each lease it grants.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Random per start of a worker: processes may share the name of a worker.
    pub instance: u64,
    /// Rises with every request of the instance.
    pub number: u64,
}

/// Omits the random instance, so that simulations print reproducible output.
impl fmt::Debug for LeaseRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseRequest").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The leases that a worker instance holds, as it reports them with a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldLeases {
    pub instance: u64,
    /// The worker waits for no response to a request below this number. Leases granted to later
    /// requests may be in flight and are not listed.
    pub responded_below: u64,
    /// Tasks with the epoch of their lease.
    pub leases: BTreeSet<(TaskId, u64)>,
}

impl HeldLeases {
    /// Whether the worker does not hold this lease: it was granted to a request whose response the
    /// worker has or does not wait for, and it is not listed.
    pub(crate) fn lacks(&self, task: &Task) -> bool {
        let Lifecycle::Active(Lease { request: Some(request), .. }) = &task.lifecycle else {
            return false;
        };
        request.instance == self.instance
            && request.number < self.responded_below
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
            indexed_when: "due_at",
        }],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.id).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.seen_at.into(), self.due_at.into()]
    }
}
