use serde::{Deserialize, Serialize};

use crate::name::{TaskId, Tenant};
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};

/// A published value of a workflow, for people and programs outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowProperty {
    pub tenant: Tenant,
    pub task: TaskId,
    /// Empty for the status.
    pub name: String,
    pub text: String,
    /// Rises with every change, even if the property was deleted in between.
    pub revision: u64,
}

impl WorkflowProperty {
    /// The name of the status.
    pub const STATUS: &'static str = "";

    pub fn key_of(tenant: &Tenant, task: &TaskId, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), task.into(), name.into()])
    }

    /// The properties of a workflow.
    pub fn of_task(tenant: &Tenant, task: &TaskId) -> Range {
        let prefix = vec![tenant.into(), task.into()];
        Range { index: Index::WorkflowPropertyOfTask, prefix, until: None }
    }
}

impl Record for WorkflowProperty {
    const SPEC: TableSpec = TableSpec {
        name: "workflow_property",
        key: &["tenant", "task", "name"],
        columns: &[],
        numbers: &[],
        indexes: &[IndexSpec {
            index: Index::WorkflowPropertyOfTask,
            columns: &["tenant", "task", "name"],
            indexed_when: "name",
        }],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.task).into(), self.name.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        Vec::new()
    }
}
