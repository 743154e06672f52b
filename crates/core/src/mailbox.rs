use serde::{Deserialize, Serialize};

use crate::limits;
use crate::name::{IdempotencyKey, TaskId, Tenant, WaitpointId};
use crate::payload::{PayloadKey, Slot};
use crate::record::{Filed, Record};
use crate::rejection::{Problem, Rejection};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::time::Timestamp;
use crate::workflow::Report;

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
    /// How many of them are not visible yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden: u32,
    /// How many of them came before the task did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub early: u32,
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
    /// How often it was received and not taken, apart from the lease that has it in hand.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The end of a step that it tells of, to a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// Until when it is kept for a task that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
    /// The key that goes with it as long as it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_key: Option<KeptKey>,
    /// When the engine looks at it again: it becomes visible then, or its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// The key of a message that is kept, and until when nobody else has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptKey {
    pub key: IdempotencyKey,
    pub expires_at: Timestamp,
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
            hidden: 0,
            early: 0,
            waitpoints: 0,
        }
    }

    /// Whether there is anything to be seen.
    pub(crate) fn shows_any(&self) -> bool {
        self.held > self.hidden
    }

    /// Counts a message no more.
    pub(crate) fn forget(&mut self, message: &Message) {
        self.held = self.held.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(message.bytes.unwrap_or(0));
        if message.due_at.is_some() {
            self.hidden = self.hidden.saturating_sub(1);
        }
        if message.kept_until.is_some() {
            self.early = self.early.saturating_sub(1);
        }
    }

    /// Where a tenant counts what is kept for tasks that are not there: under the name that no
    /// task has.
    pub(crate) fn nobody() -> TaskId {
        TaskId::new("")
    }

    pub fn key_of(tenant: &Tenant, task: &TaskId) -> RowKey {
        Self::row_key(vec![tenant.into(), task.into()])
    }
}

impl Message {
    /// The source of what the engine itself tells a task. Nobody else may say it, and no condition
    /// is met by it.
    pub const ENGINE: &'static str = "engine";

    /// The name of the message that asks a workflow to end.
    pub const CANCEL: &'static str = "cancel";

    /// What the engine tells a workflow of its steps is numbered by them, behind all that is sent.
    const STEPS: u64 = 1_000_000_000_000_000;

    /// The number of the one message that tells of a step.
    pub const fn of_step(step: u64) -> u64 {
        Self::STEPS + step
    }

    pub(crate) const fn is_of_step(&self) -> bool {
        self.seq >= Self::STEPS
    }

    /// Whether somebody has sent it, and not the engine.
    pub(crate) fn was_sent(&self) -> bool {
        self.source != Self::ENGINE
    }

    /// What the engine tells a task, to be numbered.
    pub(crate) fn of_engine(task: &crate::task::Task, name: &str, now: Timestamp) -> Self {
        Self {
            tenant: task.tenant.clone(),
            task: task.id.clone(),
            seq: 0,
            name: name.to_owned(),
            source: Self::ENGINE.to_owned(),
            waitpoint: None,
            posted_at: now,
            visible_at: now,
            bytes: None,
            taken_by: None,
            attempts: 0,
            report: None,
            kept_until: None,
            kept_key: None,
            due_at: None,
        }
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
        self.due_at.is_none() || self.kept_until.is_none() && self.visible_at <= now
    }

    /// Where its bytes are, if it carries any. A report carries the result of its task.
    pub fn payload_key(&self) -> Option<PayloadKey> {
        let reporter = self.report.as_ref().and_then(|report| report.task.as_ref());
        let (task, generation, slot) = match reporter {
            Some(reporter) => (&reporter.id, reporter.generation, Slot::RESULT),
            None => (&self.task, 0, Slot::message(self.seq)),
        };
        let (tenant, task) = (self.tenant.clone(), task.clone());
        self.bytes.map(|_| PayloadKey { tenant, task, generation, slot })
    }

    /// Where the bytes are that go with it. A workflow keeps its result itself.
    pub(crate) fn own_payload_key(&self) -> Option<PayloadKey> {
        let reporter = self.report.as_ref().and_then(|report| report.task.as_ref());
        self.payload_key().filter(|_| reporter.is_none_or(|reporter| !reporter.is_workflow))
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
