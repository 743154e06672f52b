use serde::{Deserialize, Serialize};

use crate::name::{TaskId, Tenant};
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::task::Lifecycle;
use crate::time::Timestamp;

/// Counters of the children of a task. Every creation and every end of a child writes it, so that
/// exactly one commit sees the last child end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Children {
    pub tenant: Tenant,
    pub parent: TaskId,
    /// Children that have not ended.
    pub open: u32,
    #[serde(default)]
    pub completed: u32,
    #[serde(default)]
    pub failed: u32,
    #[serde(default)]
    pub cancelled: u32,
    #[serde(default)]
    pub expired: u32,
    /// The parent has ended: no more children may be created.
    #[serde(default)]
    pub closed: bool,
    /// When the sweep cancels the next page of children, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// Numbers of children by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCounts {
    pub open: u32,
    pub completed: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub expired: u32,
}

impl ChildCounts {
    pub const fn total(&self) -> u32 {
        let ended = self.completed + self.failed + self.cancelled + self.expired;
        self.open + ended
    }
}

impl Children {
    /// The record of a parent without children.
    pub(crate) fn none_of(tenant: &Tenant, parent: &TaskId) -> Self {
        Self {
            tenant: tenant.clone(),
            parent: parent.clone(),
            open: 0,
            completed: 0,
            failed: 0,
            cancelled: 0,
            expired: 0,
            closed: false,
            due_at: None,
        }
    }

    pub fn counts(&self) -> ChildCounts {
        let Self { open, completed, failed, cancelled, expired, .. } = *self;
        ChildCounts { open, completed, failed, cancelled, expired }
    }

    /// The counter of this kind of end.
    fn like(&mut self, lifecycle: &Lifecycle) -> Option<&mut u32> {
        match lifecycle {
            Lifecycle::Completed { .. } => Some(&mut self.completed),
            Lifecycle::Failed { .. } => Some(&mut self.failed),
            Lifecycle::Cancelled { .. } => Some(&mut self.cancelled),
            Lifecycle::Expired { .. } => Some(&mut self.expired),
            Lifecycle::Waiting(_)
            | Lifecycle::Blocked(_)
            | Lifecycle::Granted { .. }
            | Lifecycle::Delayed { .. }
            | Lifecycle::Active(_)
            | Lifecycle::Suspended(_)
            | Lifecycle::WaitingChildren { .. } => None,
        }
    }

    /// Counts an open child as ended.
    pub(crate) fn count_end(&mut self, ended: &Lifecycle) {
        self.open = self.open.saturating_sub(1);
        if let Some(count) = self.like(ended) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a child as open again, and uncounts its earlier end if it was counted.
    pub(crate) fn count_revival(&mut self, counted_as: Option<&Lifecycle>) {
        self.open = self.open.saturating_add(1);
        if let Some(count) = counted_as.and_then(|had_ended| self.like(had_ended)) {
            *count = count.saturating_sub(1);
        }
    }

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
            indexed_when: "due_at",
        }],
        list_indexes: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.parent).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![i64::from(self.open).into(), 1.into(), self.due_at.into()]
    }
}
