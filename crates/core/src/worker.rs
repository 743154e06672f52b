use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::name::{LaneName, Tenant, WorkerId};
use crate::record::{Filed, Record};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::task::Offer;
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
