use serde::{Deserialize, Serialize};

use crate::name::{TaskId, Tenant};
use crate::record::{Filed, Record};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// The children of a task, counted: the owner of "the last one", which everybody writes who makes
/// a child or ends one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Children {
    pub tenant: Tenant,
    pub parent: TaskId,
    /// Those that have not ended.
    pub open: u32,
    #[serde(default)]
    pub completed: u32,
    #[serde(default)]
    pub failed: u32,
    #[serde(default)]
    pub cancelled: u32,
    #[serde(default)]
    pub expired: u32,
    /// Set when the parent has ended: there are no more to come.
    #[serde(default)]
    pub closed: bool,
    /// When the next page of them is to be cancelled, while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl Children {
    pub fn key_of(tenant: &Tenant, parent: &TaskId) -> RowKey {
        Self::row_key(vec![tenant.into(), parent.into()])
    }
}

impl Record for Children {
    const SPEC: TableSpec = TableSpec {
        name: "children",
        key: &["tenant", "parent"],
        columns: &["open", "contended", "due_at"],
        numbers: &["open", "contended", "due_at"],
        indexes: &[IndexSpec {
            index: Index::ChildrenDue,
            columns: &["due_at", "tenant", "parent"],
            present: "due_at",
        }],
        listed_by: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.parent).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![i64::from(self.open).into(), 1.into(), self.due_at.into()]
    }
}
