use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Digester};
use crate::name::{TaskId, Tenant, WaitpointId};
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::task::TaskKey;
use crate::time::Timestamp;

/// A signed right to send one message to a task from outside. The token is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waitpoint {
    pub tenant: Tenant,
    pub id: WaitpointId,
    pub task: TaskId,
    pub state: WaitpointState,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// The key that signed its token.
    pub key_id: String,
    /// A digest that identifies its token without revealing it.
    pub fingerprint: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitpointState {
    /// No suspension waits for it yet. A message through it is stored.
    Pending,
    /// Its task was suspended until a message arrives through it.
    Active,
    /// Its message has arrived.
    Completed { seq: u64 },
}

impl Waitpoint {
    pub fn key_of(tenant: &Tenant, id: &WaitpointId) -> RowKey {
        Self::row_key(vec![tenant.into(), id.into()])
    }

    pub(crate) fn of_task(tenant: &Tenant, task: &TaskId) -> Range {
        let prefix = vec![tenant.into(), task.into()];
        Range { index: Index::WaitpointOfTask, prefix, until: None }
    }
}

impl WaitpointId {
    /// The id of a waitpoint that a task names `name`: the same on every call, and different for
    /// every task and execution.
    pub fn of_task(task: &TaskKey, execution: u32, name: &str) -> Self {
        let parts = Digester::new("waitpoint").part(task.id.as_str().as_bytes());
        let parts = if execution == 0 { parts } else { parts.number(execution.into()) };
        format!("{name}-{}", parts.part(name.as_bytes()).finish()).into()
    }
}

impl WaitpointState {
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitpointState::Pending => "pending",
            WaitpointState::Active => "active",
            WaitpointState::Completed { .. } => "completed",
        }
    }
}

impl Record for Waitpoint {
    const SPEC: TableSpec = TableSpec {
        name: "waitpoint",
        key: &["tenant", "id"],
        columns: &["task", "state", "expires_at"],
        numbers: &["expires_at"],
        indexes: &[IndexSpec {
            index: Index::WaitpointOfTask,
            columns: &["tenant", "task", "id"],
            indexed_when: "task",
        }],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.id).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![(&self.task).into(), self.state.as_str().into(), self.expires_at.into()]
    }
}
