use serde::{Deserialize, Serialize};

use crate::name::{TaskId, Tenant};
use crate::payload::PayloadKey;
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::task::Task;
use crate::time::Timestamp;

/// A past execution of a workflow that continued as new. Its history is retained as long as an
/// ended task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub tenant: Tenant,
    pub task: TaskId,
    /// Its number, from zero.
    pub number: u32,
    /// The number of rows in its history.
    pub turns: u32,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of its first step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_step: u64,
    /// It had an input. `has_carried_messages`: it had messages of the previous execution.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_input: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_carried_messages: bool,
    /// Its metadata from an external runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// When it is deleted.
    pub due_at: Timestamp,
}

impl Execution {
    /// The current execution of a workflow, as it ends.
    pub(crate) fn ended(task: &Task, now: Timestamp) -> Self {
        let workflow = task.workflow.as_ref();
        Self {
            tenant: task.tenant.clone(),
            task: task.id.clone(),
            number: task.execution,
            turns: workflow.map_or(0, |workflow| workflow.turns),
            started_at: task.started_at,
            ended_at: now,
            version: workflow.and_then(|workflow| workflow.version.clone()),
            first_step: workflow.map_or(0, |workflow| workflow.first_step),
            has_input: task.input_bytes.is_some(),
            has_carried_messages: task.carried_key().is_some(),
            metadata: workflow.and_then(|workflow| workflow.metadata.clone()),
            due_at: now.plus_ms(task.policy.retention_ms),
        }
    }

    pub fn key_of(tenant: &Tenant, task: &TaskId, number: u32) -> RowKey {
        Self::row_key(vec![tenant.into(), task.into(), padded(number).as_str().into()])
    }

    /// The past executions of a workflow, in order.
    pub(crate) fn of_task(tenant: &Tenant, task: &TaskId) -> Range {
        let prefix = vec![tenant.into(), task.into()];
        Range { index: Index::ExecutionOfTask, prefix, until: None }
    }

    fn payload_key(&self, slot: crate::payload::Slot) -> PayloadKey {
        let (tenant, task) = (self.tenant.clone(), self.task.clone());
        PayloadKey { tenant, task, execution: self.number, slot }
    }

    /// The key of a row of its history.
    pub fn turn_key(&self, turn: u32) -> PayloadKey {
        self.payload_key(crate::payload::Slot::turn(turn))
    }

    /// The key of its input, if any.
    pub fn input_key(&self) -> Option<PayloadKey> {
        self.has_input.then(|| self.payload_key(crate::payload::Slot::INPUT))
    }

    /// The key of the messages carried over from the previous execution.
    pub fn carried_key(&self) -> Option<PayloadKey> {
        self.has_carried_messages.then(|| self.payload_key(crate::payload::Slot::CARRIED))
    }

    /// Its last payloads, at most `most`, and the remaining record, if any.
    pub(crate) fn truncated(&self, most: u32) -> (Vec<PayloadKey>, Option<Self>) {
        let left = self.turns.saturating_sub(most);
        let mut keys: Vec<PayloadKey> = (left..self.turns).map(|t| self.turn_key(t)).collect();
        if left > 0 {
            return (keys, Some(Self { turns: left, ..self.clone() }));
        }
        keys.extend(self.input_key().into_iter().chain(self.carried_key()));
        (keys, None)
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the value to `is_zero` by reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A number as zero-padded text that sorts in numeric order.
fn padded(number: u32) -> String {
    format!("{number:010}")
}

impl Record for Execution {
    const SPEC: TableSpec = TableSpec {
        name: "execution",
        key: &["tenant", "task", "number"],
        columns: &["due_at"],
        numbers: &["due_at"],
        indexes: &[
            IndexSpec {
                index: Index::ExecutionOfTask,
                columns: &["tenant", "task", "number"],
                indexed_when: "number",
            },
            IndexSpec {
                index: Index::ExecutionDue,
                columns: &["due_at", "tenant", "task", "number"],
                indexed_when: "due_at",
            },
        ],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        let number = padded(self.number);
        vec![(&self.tenant).into(), (&self.task).into(), number.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.due_at.into()]
    }
}
