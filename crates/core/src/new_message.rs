use crate::command::{Delay, IdempotencyWindow, NewTask};
use crate::digest::{Digest, Digester};
use crate::limits;
use crate::mailbox::Message;
use crate::name::{TaskId, WaitpointId};
use crate::payload::Payload;
use crate::rejection::Rejection;
use crate::task::Task;
use crate::time::Timestamp;

/// The fields of a message to send to a task or workflow.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub task: TaskId,
    pub name: String,
    pub source: String,
    pub idempotency: Option<IdempotencyWindow>,
    /// When it becomes visible. A timer is a delayed message.
    pub delay: Delay,
    pub if_absent: IfAbsent,
    pub limit: MailboxLimit,
    pub payload: Option<Payload>,
}

/// What to do with a message whose task does not exist.
#[derive(Clone, Debug, Default)]
pub enum IfAbsent {
    /// Rejects it with `task_not_found`.
    #[default]
    Reject,
    /// Buffers it for this time, for a workflow that is started under that id.
    Buffer { ttl_ms: u64 },
    /// Creates the task under the id of the message, then delivers the message to it.
    Start(Box<NewTask>),
}

/// The limits of the mailbox and of the payload of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailboxLimit {
    /// The condition of a task is evaluated over all of its messages, so they are few and short.
    #[default]
    Standard,
    /// For runtimes that send all inputs of a workflow as messages: a message may be as long as
    /// any payload, and a workflow may have many of them, because its condition scans none.
    Extended,
}

/// The result of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    pub task: TaskId,
    /// Its sequence number in the mailbox.
    pub seq: u64,
    /// It was sent before; `seq` is that of the first.
    pub duplicate: bool,
    /// A suspended task was resumed, by this message or by an earlier one that has become visible.
    pub resumed: bool,
    /// The task does not exist yet: the message is buffered for a workflow with this id.
    pub buffered: bool,
}

impl NewMessage {
    /// Visible at once, without a payload, rejected if its task does not exist.
    pub fn new(
        task: impl Into<TaskId>,
        name: impl Into<String>,
        source: impl Into<String>,
    ) -> Self {
        Self {
            task: task.into(),
            name: name.into(),
            source: source.into(),
            idempotency: None,
            delay: Delay::None,
            if_absent: IfAbsent::Reject,
            limit: MailboxLimit::Standard,
            payload: None,
        }
    }

    pub(crate) fn check(&self, now: Timestamp) -> Result<(), Rejection> {
        limits::TASK_ID.check(self.task.as_str())?;
        self.check_content(now)?;
        match &self.if_absent {
            IfAbsent::Start(new) => self.task_to_start(new).check(now),
            IfAbsent::Reject | IfAbsent::Buffer { .. } => Ok(()),
        }
    }

    /// Checks everything but its target.
    pub(crate) fn check_content(&self, now: Timestamp) -> Result<(), Rejection> {
        limits::MESSAGE_NAME.check(&self.name)?;
        Message::check_source(&self.source)?;
        limits::DELAY_MS.check(self.delay.ms(now))?;
        if let Some(payload) = &self.payload {
            payload.check()?;
            if self.limit == MailboxLimit::Standard {
                limits::MESSAGE_BYTES.check(payload.bytes.len())?;
            }
        }
        if let IfAbsent::Buffer { ttl_ms } = self.if_absent {
            limits::BUFFER_MS.check(ttl_ms)?;
        }
        self.idempotency.as_ref().map_or(Ok(()), IdempotencyWindow::check)
    }

    /// The task that is created for it, under its id.
    pub(crate) fn task_to_start(&self, new: &NewTask) -> NewTask {
        NewTask { id: self.task.clone(), ..new.clone() }
    }

    /// The fingerprint that identifies repeats.
    pub(crate) fn fingerprint(&self, waitpoint: Option<&WaitpointId>) -> Digest {
        let waitpoint = waitpoint.map_or("", WaitpointId::as_str);
        let digester = Digester::new("message")
            .part(self.name.as_bytes())
            .part(self.source.as_bytes())
            .part(waitpoint.as_bytes())
            .json(&self.delay);
        Payload::digest(self.payload.as_ref(), digester).finish()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.payload.as_ref().map_or(0, |payload| payload.bytes.len() as u64)
    }

    /// Payload bytes that it carries, with the input of the task that it may start.
    pub(crate) fn carried_bytes(&self) -> usize {
        let input = match &self.if_absent {
            IfAbsent::Start(new) => new.payload.as_ref(),
            IfAbsent::Reject | IfAbsent::Buffer { .. } => None,
        };
        self.payload.iter().chain(input).map(|payload| payload.bytes.len()).sum()
    }
}

impl MailboxLimit {
    /// How many messages and payload bytes the mailbox of a task may have.
    pub(crate) fn of_mailbox(self, task: &Task) -> (u32, u64) {
        match self {
            MailboxLimit::Extended if task.workflow.is_some() => {
                (limits::EXTENDED_MAILBOX_MESSAGES, limits::EXTENDED_MAILBOX_BYTES.into())
            }
            MailboxLimit::Extended | MailboxLimit::Standard => {
                (limits::MAILBOX_MESSAGES, limits::MAILBOX_BYTES.into())
            }
        }
    }
}
