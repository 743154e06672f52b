use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use windlass_core::command::{
    CompleteWaitpoint, Delay, IdempotencyWindow, IfAbsent, NewMessage, NewTask, SendMessages,
    SentMessage,
};
use windlass_core::{
    Command, IdempotencyKey, Outcome, Payload, Problem, Rejection, TaskId, Tenant, Token, limits,
};

use crate::engine::Engine;
use crate::error::Error;
use crate::task_builder::{TaskBuilder, written};

/// A builder for a signal: set its options, then await it.
#[derive(Debug)]
#[must_use = "a signal is sent when this is awaited"]
pub struct SignalBuilder<'e> {
    engine: &'e Engine,
    tenant: Tenant,
    /// Completes a waitpoint; without a token, the message goes to the named task.
    token: Option<Token>,
    message: NewMessage,
    /// The payload, or the error from serializing it.
    payload: Result<Option<Payload>, Error>,
    /// The task to create if the id does not exist, or the error from serializing its input.
    start: Option<Result<NewTask, Error>>,
}

impl Engine {
    /// Sends a signal to a task.
    pub fn signal(&self, task: impl Into<TaskId>, name: impl Into<String>) -> SignalBuilder<'_> {
        self.signal_builder(None, NewMessage::new(task, name, "api"))
    }

    /// Completes a waitpoint by its token.
    pub fn complete_waitpoint(&self, token: &Token, name: impl Into<String>) -> SignalBuilder<'_> {
        self.signal_builder(Some(token.clone()), NewMessage::new("", name, "api"))
    }

    fn signal_builder(&self, token: Option<Token>, message: NewMessage) -> SignalBuilder<'_> {
        let tenant = Tenant::default();
        SignalBuilder { engine: self, tenant, token, message, payload: Ok(None), start: None }
    }
}

impl SignalBuilder<'_> {
    pub fn tenant(mut self, tenant: impl Into<Tenant>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Sets the sender, for conditions and for people; `api` by default.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.message.source = source.into();
        self
    }

    /// Sets the payload, encoded as JSON.
    pub fn payload<T: Serialize + ?Sized>(mut self, payload: &T) -> Self {
        self.payload = written(payload).map(Some);
        self
    }

    /// Sets the payload as raw bytes.
    pub fn raw_payload(mut self, payload: Payload) -> Self {
        self.payload = Ok(Some(payload));
        self
    }

    /// Makes the signal idempotent for one day: a repetition returns the first sequence number.
    pub fn idempotency_key(mut self, key: impl Into<IdempotencyKey>) -> Self {
        let idempotency =
            IdempotencyWindow { key: key.into(), window_ms: limits::DEFAULT_WINDOW_MS };
        self.message.idempotency = Some(idempotency);
        self
    }

    /// Delays visibility. Rejected for waitpoints, whose message is always visible immediately.
    pub fn after(mut self, delay: Duration) -> Self {
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.message.delay = Delay::For { ms };
        self
    }

    /// Buffers the message for this long if the task does not exist, for a workflow started later
    /// under its id, so that sender and starter need no order. By default an unknown id is rejected
    /// with `task_not_found`. The number of buffered messages is
    /// [limited][limits::BUFFERED_MESSAGES_PER_ID].
    pub fn buffer_for(mut self, ttl: Duration) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.message.if_absent = IfAbsent::Buffer { ttl_ms };
        self
    }

    /// Creates this workflow or task if the id does not exist, and delivers the signal to it, in
    /// one commit (signal-with-start). It gets the id and the tenant of the signal. If the id
    /// exists, nothing is created. An idempotency key of the task is ignored: its id identifies it.
    /// Rejected for waitpoints.
    pub fn start_if_absent<'b>(mut self, new: impl Into<TaskBuilder<'b>>) -> Self {
        self.start = Some(new.into().into_new_task());
        self
    }

    async fn submit(self) -> Result<SentMessage, Error> {
        let (tenant, payload) = (self.tenant, self.payload?);
        let mut message = NewMessage { payload, ..self.message };
        if let Some(start) = self.start {
            message.if_absent = IfAbsent::Start(Box::new(start?));
        }
        let command: Command = match self.token {
            None => SendMessages { tenant, messages: vec![message] }.into(),
            Some(token) => {
                let NewMessage { name, source, idempotency, payload, delay, if_absent, .. } =
                    message;
                let buffers = !matches!(if_absent, IfAbsent::Reject);
                let unfit = [("delay", delay != Delay::None), ("if_absent", buffers)];
                if let Some((field, _)) = unfit.into_iter().find(|(_, is_set)| *is_set) {
                    let problem = Problem::NotForWaitpoints;
                    return Err(Rejection::Invalid { field, problem }.into());
                }
                CompleteWaitpoint { tenant, token, name, source, idempotency, payload }.into()
            }
        };
        match self.engine.submit(command).await? {
            Outcome::Sent(mut sent) => Ok(sent.pop().expect("one message, one result")),
            other => unreachable!("unexpected outcome of a send: {other:?}"),
        }
    }
}

impl<'e> IntoFuture for SignalBuilder<'e> {
    type Output = Result<SentMessage, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'e>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}
