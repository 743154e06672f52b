use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use windlass_core::command::{
    ConsumeMessages, CreateWaitpoint, CreatedWaitpoint, NewMessage, NewWaitpoint, Resume,
    SendMessages, SentMessage, Suspend,
};
use windlass_core::{
    Fence, Message, Outcome, Payload, PayloadKey, Rejection, Resumption, RowKey, Table, TaskId,
    TaskKey, Tenant, Value, Waitpoint, WaitpointId, limits, read_row,
};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;

/// A message with its payload.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    pub message: Arc<Message>,
    pub payload: Option<Payload>,
}

impl ReceivedMessage {
    /// Decodes the payload as JSON; no payload decodes as `null`. A lost payload is an error.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.check()?;
        let bytes = self.payload.as_ref().map_or(&b"null"[..], |payload| &payload.bytes);
        serde_json::from_slice(bytes).map_err(|error| Error::Payload(Arc::new(error)))
    }

    /// Fails if the payload is missing from the store.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.message.payload_key() {
            Some(key) if self.payload.is_none() => Err(Error::payload_missing(key)),
            _ => Ok(()),
        }
    }
}

/// The result of a suspension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuspendResult {
    /// The lease has ended. Contains the waitpoints created with it.
    Waiting(Vec<CreatedWaitpoint>),
    /// The condition is already satisfied: the lease continues.
    AlreadySatisfied(Resumption),
}

impl Engine {
    /// Sends messages to tasks and workflows atomically.
    pub async fn send_messages(
        &self,
        tenant: &Tenant,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<SentMessage>, Error> {
        match self.submit(SendMessages { tenant: tenant.clone(), messages }).await? {
            Outcome::Sent(sent) => Ok(sent),
            other => unreachable!("unexpected outcome of a send: {other:?}"),
        }
    }

    /// Creates a waitpoint of a task, as an operator. An identical repetition returns the same
    /// token.
    pub async fn create_waitpoint(
        &self,
        task: &TaskKey,
        id: impl Into<WaitpointId>,
        ttl: Duration,
    ) -> Result<CreatedWaitpoint, Error> {
        self.make_waitpoint(task, None, id.into(), ttl).await
    }

    /// Creates a waitpoint of a task, as its lease holder.
    pub async fn create_held_waitpoint(
        &self,
        fence: &Fence,
        id: impl Into<WaitpointId>,
        ttl: Duration,
    ) -> Result<CreatedWaitpoint, Error> {
        self.make_waitpoint(&fence.task, Some(fence.epoch), id.into(), ttl).await
    }

    async fn make_waitpoint(
        &self,
        task: &TaskKey,
        epoch: Option<u64>,
        id: WaitpointId,
        ttl: Duration,
    ) -> Result<CreatedWaitpoint, Error> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let waitpoint = NewWaitpoint { id, ttl_ms };
        let create = CreateWaitpoint { task: task.clone(), epoch, waitpoint };
        match self.submit_signed(&task.tenant, create).await? {
            Outcome::WaitpointCreated(made) => Ok(made),
            other => unreachable!("unexpected outcome of a waitpoint: {other:?}"),
        }
    }

    /// Suspends a leased task until a condition holds, unless it holds already.
    pub async fn suspend(&self, suspend: Suspend) -> Result<SuspendResult, Error> {
        let tenant = suspend.fence.task.tenant.clone();
        match self.submit_signed(&tenant, suspend).await? {
            Outcome::Suspended { waitpoints } => Ok(SuspendResult::Waiting(waitpoints)),
            Outcome::AlreadySatisfied(resumption) => {
                Ok(SuspendResult::AlreadySatisfied(resumption))
            }
            other => unreachable!("unexpected outcome of a suspension: {other:?}"),
        }
    }

    /// Resumes a suspended task, regardless of its condition.
    pub async fn resume(&self, task: &TaskKey, by: impl Into<String>) -> Result<(), Error> {
        self.submit(Resume { task: task.clone(), by: by.into() }).await.map(drop)
    }

    /// Consumes messages from the mailbox, as the lease holder. Returns how many still existed.
    pub async fn consume_messages(&self, fence: &Fence, seqs: Vec<u64>) -> Result<usize, Error> {
        match self.submit(ConsumeMessages { fence: fence.clone(), seqs }).await? {
            Outcome::Consumed { consumed } => Ok(consumed),
            other => unreachable!("unexpected outcome of a take: {other:?}"),
        }
    }

    /// The messages of a task after sequence number `after`, in order, with payloads. Includes
    /// messages that become visible later.
    pub async fn messages(
        &self,
        task: &TaskKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let messages = self.list::<Message>(Query { limit, ..behind(task, after) }).await?;
        self.with_payloads(messages).await
    }

    /// Like [`Engine::messages`], without payloads. Fails on an undecodable message instead of
    /// skipping it, because a turn must see all messages.
    pub(crate) async fn readable_messages(
        &self,
        task: &TaskKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Message>>, Error> {
        let rows = self.store().query(&Query { limit, ..behind(task, after) }).await?;
        let messages = rows.iter().map(|row| {
            let message = read_row::<Message>(row.schema, &row.body);
            message.ok_or_else(|| Error::MessageUnreadable { seq: seq_of(&row.key) })
        });
        messages.collect()
    }

    /// The messages that last resumed a task, with payloads. Omits messages that have been consumed
    /// since.
    pub async fn resuming_signals(&self, task: &TaskKey) -> Result<Vec<ReceivedMessage>, Error> {
        let record = self.task(task).await?.ok_or(Rejection::TaskNotFound)?;
        match &record.resumption {
            Some(resumption) => self.messages_by_seq(task, &resumption.messages).await,
            None => Ok(Vec::new()),
        }
    }

    /// Messages by sequence number, with payloads.
    pub async fn messages_by_seq(
        &self,
        task: &TaskKey,
        seqs: &[u64],
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let Some(first) = seqs.iter().min() else { return Ok(Vec::new()) };
        let mut messages = self.list::<Message>(behind(task, first.saturating_sub(1))).await?;
        messages.retain(|message| seqs.contains(&message.seq));
        self.with_payloads(messages).await
    }

    pub(crate) async fn with_payloads(
        &self,
        messages: Vec<Arc<Message>>,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let keys: Vec<PayloadKey> = messages.iter().filter_map(|m| m.payload_key()).collect();
        let payloads =
            if keys.is_empty() { Vec::new() } else { self.store().payloads(&keys).await? };
        let mut payloads = payloads.into_iter();
        let received = messages.into_iter().map(|message| {
            let payload = message.bytes.and_then(|_| payloads.next().flatten());
            ReceivedMessage { message, payload }
        });
        Ok(received.collect())
    }

    /// The waitpoints of a tenant, or of one task, after `after`, by id. Tokens appear only as
    /// fingerprints.
    pub async fn waitpoints(
        &self,
        tenant: &Tenant,
        task: Option<&TaskId>,
        after: Option<&WaitpointId>,
        limit: usize,
    ) -> Result<Vec<Arc<Waitpoint>>, Error> {
        let filter = task.map(|task| ("task", task.into())).into_iter().collect();
        let after = after.map(|id| vec![tenant.into(), id.into()]);
        let prefix = vec![tenant.into()];
        let query = Query { prefix, filter, after, ..Query::all(Table::Waitpoint, limit) };
        self.list::<Waitpoint>(query).await
    }
}

/// All messages of a task after `seq`: a mailbox fits into one list.
fn behind(task: &TaskKey, seq: u64) -> Query {
    let prefix = vec![(&task.tenant).into(), (&task.id).into()];
    let after = Some(Message::key_of(&task.tenant, &task.id, seq).values);
    let most = usize::try_from(limits::MAILBOX_MESSAGES).unwrap_or(usize::MAX);
    Query { prefix, after, ..Query::all(Table::Message, most) }
}

/// The sequence number of a message, from its key: the body may be undecodable.
fn seq_of(key: &RowKey) -> u64 {
    match key.values.last() {
        Some(Value::Text(seq)) => seq.parse().unwrap_or_default(),
        _ => 0,
    }
}
