use serde::{Deserialize, Serialize};

use crate::name::NodeId;
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// An engine on a shared store, with its last heartbeat.
///
/// For operators, and to find out which formats all nodes can read. No lease depends on it: a node
/// that was wrongly declared dead registers again with its next heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Identifies one run of an engine: each start has a new id.
    pub id: NodeId,
    /// A display name, such as the host name. It need not be unique.
    pub name: String,
    pub pid: u32,
    /// The version of its program.
    pub version: String,
    /// The highest store format that it supports.
    pub format: i64,
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
    /// The heartbeat interval.
    pub heartbeat_interval_ms: u64,
    /// When it is declared dead.
    pub due_at: Timestamp,
}

impl Node {
    pub fn key_of(id: &NodeId) -> RowKey {
        Self::row_key(vec![id.into()])
    }

    /// All nodes, ordered by the time at which they would be declared dead.
    pub(crate) fn all() -> Range {
        Range { index: Index::NodeDue, prefix: Vec::new(), until: None }
    }
}

impl Record for Node {
    const SPEC: TableSpec = TableSpec {
        name: "node",
        key: &["id"],
        columns: &["name", "seen_at", "due_at"],
        numbers: &["seen_at", "due_at"],
        indexes: &[IndexSpec {
            index: Index::NodeDue,
            columns: &["due_at", "id"],
            indexed_when: "due_at",
        }],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.id).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.name.as_str().into(), self.seen_at.into(), self.due_at.into()]
    }
}
