use serde::{Deserialize, Serialize};

use crate::limits;
use crate::name::{IdempotencyKey, TaskId, Tenant, WaitpointId};
use crate::payload::{PayloadKey, Slot};
use crate::record::{Record, StoredRecord};
use crate::rejection::{Problem, Rejection};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::time::Timestamp;
use crate::workflow::StepCompletion;

/// Counters of the messages of a task. Every delivery and every removal of a message writes it,
/// instead of the task, so that the lease holder is not disturbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailbox {
    pub tenant: Tenant,
    pub task: TaskId,
    /// The sequence number of the next message.
    pub next_seq: u64,
    /// The number of stored messages.
    pub messages: u32,
    /// The total size of their payloads.
    pub bytes: u64,
    /// The number of messages that are not visible yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden: u32,
    /// The number of messages buffered before the task existed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub buffered: u32,
    /// The number of waitpoints of the task.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waitpoints: u32,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the value to `is_zero` by reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A message to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub tenant: Tenant,
    pub task: TaskId,
    /// Its position in the mailbox.
    pub seq: u64,
    pub name: String,
    pub source: String,
    /// The waitpoint that it arrived through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waitpoint: Option<WaitpointId>,
    pub sent_at: Timestamp,
    pub visible_at: Timestamp,
    /// The size of its payload, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The start of the attempt that it resumed. It meets no other condition of that attempt; a
    /// later attempt sees it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_attempt_at: Option<Timestamp>,
    /// The number of deliveries that did not consume it, without the one in flight.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delivery_count: u32,
    /// The completion of a step of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<StepCompletion>,
    /// When it expires, while it is buffered for a task that does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered_until: Option<Timestamp>,
    /// Its idempotency key, while it is buffered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered_key: Option<BufferedKey>,
    /// When the sweep checks it: it becomes visible then, is re-checked or expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// The idempotency key of a buffered message, and when the key expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferedKey {
    pub key: IdempotencyKey,
    pub expires_at: Timestamp,
}

impl Mailbox {
    /// The sequence number of the first message.
    pub(crate) const FIRST: u64 = 1;

    pub(crate) fn empty(tenant: &Tenant, task: &TaskId) -> Self {
        Self {
            tenant: tenant.clone(),
            task: task.clone(),
            next_seq: Self::FIRST,
            messages: 0,
            bytes: 0,
            hidden: 0,
            buffered: 0,
            waitpoints: 0,
        }
    }

    /// Whether it has visible messages.
    pub(crate) fn shows_any(&self) -> bool {
        self.messages > self.hidden
    }

    /// Removes a message from the counters.
    pub(crate) fn forget(&mut self, message: &Message) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(message.bytes.unwrap_or(0));
        if message.due_at.is_some() {
            self.hidden = self.hidden.saturating_sub(1);
        }
        if message.buffered_until.is_some() {
            self.buffered = self.buffered.saturating_sub(1);
        }
    }

    /// The id under which a tenant counts its buffered messages. No task has this id.
    pub(crate) fn tenant_buffer_id() -> TaskId {
        TaskId::new("")
    }

    pub fn key_of(tenant: &Tenant, task: &TaskId) -> RowKey {
        Self::row_key(vec![tenant.into(), task.into()])
    }
}

impl Message {
    /// The source of messages of the engine. Callers may not use it, and such messages meet only
    /// `Condition::AnyMessage`.
    pub const ENGINE: &'static str = "engine";

    /// The name of the message that requests cancellation of a workflow.
    pub const CANCEL: &'static str = "cancel";

    /// The first number of step completions, beyond the numbers of sent messages.
    const STEPS: u64 = 1_000_000_000_000_000;

    /// The number of the completion message of a step.
    pub const fn of_step(step: u64) -> u64 {
        Self::STEPS + step
    }

    pub(crate) const fn is_of_step(&self) -> bool {
        self.seq >= Self::STEPS
    }

    /// Whether a caller sent it, not the engine.
    pub(crate) fn is_external(&self) -> bool {
        self.source != Self::ENGINE
    }

    /// A message of the engine, without its sequence number.
    pub(crate) fn of_engine(task: &crate::task::Task, name: &str, now: Timestamp) -> Self {
        Self {
            tenant: task.tenant.clone(),
            task: task.id.clone(),
            seq: 0,
            name: name.to_owned(),
            source: Self::ENGINE.to_owned(),
            waitpoint: None,
            sent_at: now,
            visible_at: now,
            bytes: None,
            resumed_attempt_at: None,
            delivery_count: 0,
            completion: None,
            buffered_until: None,
            buffered_key: None,
            due_at: None,
        }
    }

    pub(crate) fn check_source(source: &str) -> Result<(), Rejection> {
        limits::MESSAGE_SOURCE.check(source)?;
        if source == Self::ENGINE {
            let (field, problem) = (limits::MESSAGE_SOURCE.field, Problem::Reserved);
            return Err(Rejection::Invalid { field, problem });
        }
        Ok(())
    }

    pub fn key_of(tenant: &Tenant, task: &TaskId, seq: u64) -> RowKey {
        Self::row_key(vec![tenant.into(), task.into(), padded(seq).as_str().into()])
    }

    /// All messages of a task, in order.
    pub(crate) fn of_task(tenant: &Tenant, task: &TaskId) -> Range {
        let prefix = vec![tenant.into(), task.into()];
        Range { index: Index::MessageOfTask, prefix, until: None }
    }

    /// Whether it is visible. A message that is not due is visible to every batch, even to one that
    /// began before it was sent: otherwise a task could be suspended and never be woken by it.
    pub(crate) fn is_visible(&self, now: Timestamp) -> bool {
        self.due_at.is_none() || self.buffered_until.is_none() && self.visible_at <= now
    }

    /// The key of its payload, if any. A completion message refers to the result of its task.
    pub fn payload_key(&self) -> Option<PayloadKey> {
        let completed = self.completion.as_ref().and_then(|completion| completion.task.as_ref());
        let (task, execution, slot) = match completed {
            Some(completed) => (&completed.id, completed.execution, Slot::RESULT),
            None => (&self.task, 0, Slot::message(self.seq)),
        };
        let (tenant, task) = (self.tenant.clone(), task.clone());
        self.bytes.map(|_| PayloadKey { tenant, task, execution, slot })
    }

    /// The key of the payload that is deleted with it. A child workflow retains its own result.
    pub(crate) fn own_payload_key(&self) -> Option<PayloadKey> {
        let completed = self.completion.as_ref().and_then(|completion| completion.task.as_ref());
        self.payload_key().filter(|_| completed.is_none_or(|completed| !completed.is_workflow))
    }
}

/// A number as zero-padded text that sorts in numeric order.
fn padded(seq: u64) -> String {
    format!("{seq:012}")
}

impl Record for Mailbox {
    const SPEC: TableSpec = TableSpec {
        name: "mailbox",
        key: &["tenant", "task"],
        columns: &["messages", "contended"],
        numbers: &["messages", "contended"],
        indexes: &[],
        list_indexes: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.task).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![i64::from(self.messages).into(), 1.into()]
    }
}

impl Record for Message {
    const SPEC: TableSpec = TableSpec {
        name: "message",
        key: &["tenant", "task", "seq"],
        columns: &["name", "due_at"],
        numbers: &["due_at"],
        indexes: &[
            IndexSpec {
                index: Index::MessageOfTask,
                columns: &["tenant", "task", "seq"],
                indexed_when: "seq",
            },
            IndexSpec {
                index: Index::MessageDue,
                columns: &["due_at", "tenant", "task", "seq"],
                indexed_when: "due_at",
            },
        ],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.task).into(), padded(self.seq).as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.name.as_str().into(), self.due_at.into()]
    }
}
