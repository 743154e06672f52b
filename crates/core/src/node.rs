use serde::{Deserialize, Serialize};

use crate::name::NodeId;
use crate::record::{Filed, Record};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// An engine that runs on a store which others share: who it is, and when it was last heard of.
///
/// It is there for people, and for whoever asks what all nodes can read. No lease depends on it:
/// a node that was taken for gone and is not registers again with its next beat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// One life of an engine: each start has another.
    pub id: NodeId,
    /// What people call it, as the name of its host. Several may have the same.
    pub name: String,
    pub pid: u32,
    /// The version of its program.
    pub version: String,
    /// The highest format of the store that it knows.
    pub format: i64,
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
    /// How often it is to be heard of.
    pub every_ms: u64,
    /// When it is taken for gone.
    pub due_at: Timestamp,
}

impl Node {
    pub fn key_of(id: &NodeId) -> RowKey {
        Self::row_key(vec![id.into()])
    }

    /// Every node, in the order in which they would be taken for gone.
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
            present: "due_at",
        }],
        listed_by: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.id).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.name.as_str().into(), self.seen_at.into(), self.due_at.into()]
    }
}
