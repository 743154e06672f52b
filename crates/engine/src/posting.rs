use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use windlass_core::command::{Idempotency, NewMessage, Post, Posted, Signal};
use windlass_core::{Command, IdempotencyKey, Outcome, Payload, TaskId, Tenant, Token, limits};

use crate::creation::written;
use crate::engine::Engine;
use crate::error::Error;

/// A message to be: say what it should be, then await it.
#[derive(Debug)]
#[must_use = "a message is posted when this is awaited"]
pub struct Posting<'e> {
    engine: &'e Engine,
    tenant: Tenant,
    /// Through a waitpoint; without one to the task that the message names.
    token: Option<Token>,
    message: NewMessage,
    /// What it carries, or why that could not be written.
    payload: Result<Option<Payload>, Error>,
}

impl Engine {
    /// Posts a message of this name to a task.
    pub fn post(&self, task: impl Into<TaskId>, name: impl Into<String>) -> Posting<'_> {
        self.posting(None, NewMessage::new(task, name, "api"))
    }

    /// Posts the one message of a waitpoint, with its token.
    pub fn signal(&self, token: &Token, name: impl Into<String>) -> Posting<'_> {
        self.posting(Some(token.clone()), NewMessage::new("", name, "api"))
    }

    fn posting(&self, token: Option<Token>, message: NewMessage) -> Posting<'_> {
        Posting { engine: self, tenant: Tenant::default(), token, message, payload: Ok(None) }
    }
}

impl Posting<'_> {
    pub fn tenant(mut self, tenant: impl Into<Tenant>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Who says so, for conditions and for people; `api` unless it is said.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.message.source = source.into();
        self
    }

    /// What it carries, as JSON.
    pub fn payload<T: Serialize + ?Sized>(mut self, payload: &T) -> Self {
        self.payload = written(payload).map(Some);
        self
    }

    /// What it carries, as it is.
    pub fn raw_payload(mut self, payload: Payload) -> Self {
        self.payload = Ok(Some(payload));
        self
    }

    /// Posts it once per key and day: the same again gets the number of the first.
    pub fn idempotency_key(mut self, key: impl Into<IdempotencyKey>) -> Self {
        let idempotency = Idempotency { key: key.into(), window_ms: limits::DEFAULT_WINDOW_MS };
        self.message.idempotency = Some(idempotency);
        self
    }

    /// Visible only after so long. A message through a waitpoint is visible at once.
    pub fn after(mut self, pause: Duration) -> Self {
        self.message.after_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Keeps it for so long if there is no such task, for the workflow that is started under its
    /// id: sender and starter need not agree on who comes first. Unsaid, `task_not_found` tells of
    /// an id that is mistyped. How much is kept for ids that there are not is
    /// [limited][limits::EARLY_MESSAGES].
    pub fn or_keep(mut self, keep: Duration) -> Self {
        self.message.keep_ms = Some(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
        self
    }

    async fn submit(self) -> Result<Posted, Error> {
        let (tenant, payload) = (self.tenant, self.payload?);
        let message = NewMessage { payload, ..self.message };
        let command: Command = match self.token {
            None => Post { tenant, messages: vec![message] }.into(),
            Some(token) => {
                let NewMessage { name, source, idempotency, payload, .. } = message;
                Signal { tenant, token, name, source, idempotency, payload }.into()
            }
        };
        match self.engine.submit(command).await? {
            Outcome::Posted(mut posted) => Ok(posted.pop().expect("one message, one answer")),
            other => unreachable!("a post is answered as a post, not {other:?}"),
        }
    }
}

impl<'e> IntoFuture for Posting<'e> {
    type Output = Result<Posted, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'e>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}
