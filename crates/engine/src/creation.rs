use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use windlass_core::command::{Create, Idempotency, NewTask, NewWorkflow, Start};
use windlass_core::{
    GateKey, IdempotencyKey, Kind, LaneName, Outcome, Payload, RetryPolicy, TaskId, TaskKey,
    Tenant, limits,
};

use crate::engine::Engine;
use crate::error::Error;
use crate::handle::TaskHandle;

/// A task to be: say what it should be, then await it.
///
/// Everything unsaid is as [`NewTask::new`] has it, under a fresh id.
#[derive(Debug)]
#[must_use = "a task is created when this is awaited"]
pub struct Creation<'e> {
    engine: &'e Engine,
    tenant: Tenant,
    task: NewTask,
    /// What its handler gets, or why that could not be written.
    payload: Result<Option<Payload>, Error>,
}

impl Engine {
    /// Creates a task of this kind.
    pub fn create(&self, kind: impl Into<Kind>) -> Creation<'_> {
        let task = NewTask::new(Self::new_id(), kind);
        Creation { engine: self, tenant: Tenant::default(), task, payload: Ok(None) }
    }
}

impl<'e> Creation<'e> {
    pub(crate) fn engine(&self) -> &'e Engine {
        self.engine
    }

    /// An id of the caller's own. Creating the same task again under it changes nothing.
    pub fn id(mut self, id: impl Into<TaskId>) -> Self {
        self.task.id = id.into();
        self
    }

    pub fn tenant(mut self, tenant: impl Into<Tenant>) -> Self {
        self.tenant = tenant.into();
        self
    }

    pub fn lane(mut self, lane: impl Into<LaneName>) -> Self {
        self.task.lane = lane.into();
        self
    }

    /// It is a workflow: its handler is replayed over its history. Only workers that can replay
    /// this version of its code take it; any worker does, where none is named.
    pub fn workflow(mut self, version: Option<String>) -> Self {
        self.task.workflow = Some(NewWorkflow { version });
        self.task.policy = self.task.policy.of_workflow();
        self
    }

    /// The task that it is made for, which may wait for it.
    pub fn parent(mut self, parent: impl Into<TaskId>) -> Self {
        self.task.parent = Some(parent.into());
        self
    }

    /// What the handler gets, as JSON.
    pub fn payload<T: Serialize + ?Sized>(mut self, payload: &T) -> Self {
        self.payload = written(payload).map(Some);
        self
    }

    /// What the handler gets, as it is.
    pub fn raw_payload(mut self, payload: Payload) -> Self {
        self.payload = Ok(Some(payload));
        self
    }

    /// Higher ones go first within their lane.
    pub fn priority(mut self, priority: i32) -> Self {
        self.task.priority = priority;
        self
    }

    pub fn after(mut self, pause: Duration) -> Self {
        self.task.start = Start::After { ms: ms(pause) };
        self
    }

    /// How often it is tried, and how far apart. Unsaid, a failure that is reported is final.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.task.policy.retry = Some(retry);
        self
    }

    /// How long one attempt may take.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.task.policy.attempt_timeout_ms = Some(ms(timeout));
        self
    }

    /// How long from its creation until it expires, wherever it stands.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.task.deadline_ms = Some(ms(deadline));
        self
    }

    /// How long it is kept once it has ended.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.task.policy.retention_ms = ms(retention);
        self
    }

    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.task.labels.insert(name.into(), value.into());
        self
    }

    /// Something that only some workers offer.
    pub fn requires(mut self, capability: impl Into<String>) -> Self {
        self.task.capabilities.insert(capability.into());
        self
    }

    /// The word by which workers choose.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.task.tag = Some(tag.into());
        self
    }

    /// The key that it shares with others: they run one at a time, or as the quota of the key
    /// says.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.task.gate = Some(GateKey::Key(key.into()));
        self
    }

    /// The session that it belongs to: its tasks run at one worker, one at a time, or as the quota
    /// of the session says. A task has a key or a session.
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.task.gate = Some(GateKey::Session(session.into()));
        self
    }

    /// Creates it once per key and day: the same request again gets the first task, another one
    /// under the same key is a conflict.
    pub fn idempotency_key(mut self, key: impl Into<IdempotencyKey>) -> Self {
        let idempotency = Idempotency { key: key.into(), window_ms: limits::DEFAULT_WINDOW_MS };
        self.task.idempotency = Some(idempotency);
        self
    }

    async fn submit(self) -> Result<TaskHandle, Error> {
        let task = NewTask { payload: self.payload?, ..self.task };
        let create = Create { tenant: self.tenant.clone(), tasks: vec![task] };
        match self.engine.submit(create).await? {
            Outcome::Created(mut created) => {
                let created = created.pop().expect("one task, one answer");
                let key = TaskKey { tenant: self.tenant, id: created.id };
                Ok(TaskHandle::new(self.engine.clone(), key, created.duplicate))
            }
            other => unreachable!("a create is answered as a create, not {other:?}"),
        }
    }
}

impl<'e> IntoFuture for Creation<'e> {
    type Output = Result<TaskHandle, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'e>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}

/// A payload as JSON, or why there is none.
pub(crate) fn written<T: Serialize + ?Sized>(payload: &T) -> Result<Payload, Error> {
    match serde_json::to_vec(payload) {
        Ok(bytes) => Ok(Payload::new("application/json", bytes)),
        Err(error) => Err(Error::Payload(Arc::new(error))),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
