use serde::{Deserialize, Serialize};

use crate::limits;
use crate::name::{TaskId, Tenant, WaitpointId};
use crate::payload::{PayloadKey, Slot};
use crate::record::{Filed, Record};
use crate::rejection::{Problem, Rejection};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// What has been posted to a task: the owner of "is there anything", which everybody who posts or
/// takes a message writes, beside the task so that its holder is not disturbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailbox {
    pub tenant: Tenant,
    pub task: TaskId,
    /// The number of the next message.
    pub next_seq: u64,
    /// How many messages are there.
    pub held: u32,
    /// How many bytes they carry.
    pub bytes: u64,
    /// How many waitpoints its task has.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waitpoints: u32,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes what it asks about by reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A message to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub tenant: Tenant,
    pub task: TaskId,
    /// Its place in the order of the mailbox.
    pub seq: u64,
    pub name: String,
    pub source: String,
    /// The waitpoint through which it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waitpoint: Option<WaitpointId>,
    pub posted_at: Timestamp,
    pub visible_at: Timestamp,
    /// The size of what it carries, if it carries anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// When the attempt began that went on because of it. It counts for no other condition of that
    /// attempt; one that begins later sees it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<Timestamp>,
    /// When it becomes visible, while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl Mailbox {
    /// The number of the first message.
    pub(crate) const FIRST: u64 = 1;

    pub(crate) fn empty(tenant: &Tenant, task: &TaskId) -> Self {
        Self {
            tenant: tenant.clone(),
            task: task.clone(),
            next_seq: Self::FIRST,
            held: 0,
            bytes: 0,
            waitpoints: 0,
        }
    }

    /// Counts a message no more.
    pub(crate) fn forget(&mut self, message: &Message) {
        self.held = self.held.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(message.bytes.unwrap_or(0));
    }

    pub fn key_of(tenant: &Tenant, task: &TaskId) -> RowKey {
        Self::row_key(vec![tenant.into(), task.into()])
    }
}

impl Message {
    /// The source of what the engine itself tells a task. Nobody else may say it, and no condition
    /// is met by it.
    pub const ENGINE: &'static str = "engine";

    /// Whether somebody has sent it, and not the engine.
    pub(crate) fn was_sent(&self) -> bool {
        self.source != Self::ENGINE
    }

    pub(crate) fn check_source(source: &str) -> Result<(), Rejection> {
        limits::MESSAGE_SOURCE.check(source)?;
        if source == Self::ENGINE {
            let (field, problem) = (limits::MESSAGE_SOURCE.field, Problem::OfTheEngine);
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

    /// Whether it counts. What the engine need not look at again does so for everybody, also for
    /// a batch that began before it came: nobody would wake a task that goes to sleep over it.
    pub(crate) fn is_visible(&self, now: Timestamp) -> bool {
        self.due_at.is_none() || self.visible_at <= now
    }

    /// Where its bytes are, if it carries any.
    pub fn payload_key(&self) -> Option<PayloadKey> {
        self.bytes.map(|_| PayloadKey {
            tenant: self.tenant.clone(),
            task: self.task.clone(),
            generation: 0,
            slot: Slot::message(self.seq),
        })
    }
}

/// A number as a text that sorts like it.
fn padded(seq: u64) -> String {
    format!("{seq:012}")
}

impl Record for Mailbox {
    const SPEC: TableSpec = TableSpec {
        name: "mailbox",
        key: &["tenant", "task"],
        columns: &["held", "contended"],
        numbers: &["held", "contended"],
        indexes: &[],
        listed_by: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.task).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![i64::from(self.held).into(), 1.into()]
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
                present: "seq",
            },
            IndexSpec {
                index: Index::MessageDue,
                columns: &["due_at", "tenant", "task", "seq"],
                present: "due_at",
            },
        ],
        listed_by: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.task).into(), padded(self.seq).as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.name.as_str().into(), self.due_at.into()]
    }
}
