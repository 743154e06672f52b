use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use windlass_core::command::{Create, Delay, IdempotencyWindow, NewTask, NewWorkflow};
use windlass_core::{
    IdempotencyKey, Kind, LaneName, LimitKey, Outcome, Payload, RetryPolicy, TaskId, TaskKey,
    Tenant, limits,
};

use crate::engine::Engine;
use crate::error::Error;
use crate::task_handle::TaskHandle;

/// A builder for a task: set its options, then await it.
///
/// Options that are not set default to those of [`NewTask::new`], with a generated id.
#[derive(Debug)]
#[must_use = "a task is created when this is awaited"]
pub struct TaskBuilder<'e> {
    engine: &'e Engine,
    tenant: Tenant,
    task: NewTask,
    /// The input, or the error from serializing it.
    payload: Result<Option<Payload>, Error>,
}

impl Engine {
    /// Creates a task of this kind.
    pub fn create(&self, kind: impl Into<Kind>) -> TaskBuilder<'_> {
        let task = NewTask::new(Self::new_id(), kind);
        TaskBuilder { engine: self, tenant: Tenant::default(), task, payload: Ok(None) }
    }
}

impl<'e> TaskBuilder<'e> {
    pub(crate) fn engine(&self) -> &'e Engine {
        self.engine
    }

    /// Sets the task id. Creating an identical task again under it changes nothing.
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

    /// Creates a workflow: its handler replays its history. Only workers with this version of its
    /// code claim it; without a version, any worker may.
    pub fn workflow(mut self, version: Option<String>) -> Self {
        self.task.workflow = Some(NewWorkflow { version });
        self.task.policy = self.task.policy.of_workflow();
        self
    }

    /// Sets the parent task, which may wait for this child.
    pub fn parent(mut self, parent: impl Into<TaskId>) -> Self {
        self.task.parent = Some(parent.into());
        self
    }

    /// Sets the handler's input, encoded as JSON.
    pub fn payload<T: Serialize + ?Sized>(mut self, payload: &T) -> Self {
        self.payload = written(payload).map(Some);
        self
    }

    /// Sets the handler's input as raw bytes.
    pub fn raw_payload(mut self, payload: Payload) -> Self {
        self.payload = Ok(Some(payload));
        self
    }

    /// Sets the priority; higher values run first within their lane.
    pub fn priority(mut self, priority: i32) -> Self {
        self.task.priority = priority;
        self
    }

    pub fn after(mut self, delay: Duration) -> Self {
        self.task.delay = Delay::For { ms: ms(delay) };
        self
    }

    /// Sets the number of attempts and their backoff. By default a reported failure is final.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.task.policy.retry = Some(retry);
        self
    }

    /// Sets the timeout of one attempt.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.task.policy.attempt_timeout_ms = Some(ms(timeout));
        self
    }

    /// Sets the time after creation at which the task expires, in any state.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.task.deadline_ms = Some(ms(deadline));
        self
    }

    /// Sets how long the task is retained after it has ended.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.task.policy.retention_ms = ms(retention);
        self
    }

    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.task.labels.insert(name.into(), value.into());
        self
    }

    /// Requires a capability of the worker.
    pub fn requires(mut self, capability: impl Into<String>) -> Self {
        self.task.capabilities.insert(capability.into());
        self
    }

    /// Sets a tag; workers select tasks by tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.task.tag = Some(tag.into());
        self
    }

    /// Sets the concurrency key. Tasks with the same key run one at a time, or up to the quota of
    /// the key.
    pub fn concurrency_key(mut self, key: impl Into<String>) -> Self {
        self.task.limit_key = Some(LimitKey::Concurrency(key.into()));
        self
    }

    /// Sets the session. Its tasks run on one worker, one at a time or up to the quota of the
    /// session. A task has either a concurrency key or a session.
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.task.limit_key = Some(LimitKey::Session(session.into()));
        self
    }

    /// Makes the creation idempotent for one day. The same request again returns the first task; a
    /// different request under the same key is a conflict.
    pub fn idempotency_key(mut self, key: impl Into<IdempotencyKey>) -> Self {
        let idempotency =
            IdempotencyWindow { key: key.into(), window_ms: limits::DEFAULT_WINDOW_MS };
        self.task.idempotency = Some(idempotency);
        self
    }

    pub(crate) fn into_new_task(self) -> Result<NewTask, Error> {
        Ok(NewTask { payload: self.payload?, ..self.task })
    }

    async fn submit(self) -> Result<TaskHandle, Error> {
        let (engine, tenant) = (self.engine, self.tenant.clone());
        let create = Create { tenant: tenant.clone(), tasks: vec![self.into_new_task()?] };
        match engine.submit(create).await? {
            Outcome::Created(mut created) => {
                let created = created.pop().expect("one task, one result");
                let key = TaskKey { tenant, id: created.id };
                Ok(TaskHandle::new(engine.clone(), key, created.duplicate))
            }
            other => unreachable!("unexpected outcome of a create: {other:?}"),
        }
    }
}

impl<'e> IntoFuture for TaskBuilder<'e> {
    type Output = Result<TaskHandle, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'e>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}

/// Encodes a payload as JSON.
pub(crate) fn written<T: Serialize + ?Sized>(payload: &T) -> Result<Payload, Error> {
    match serde_json::to_vec(payload) {
        Ok(bytes) => Ok(Payload::new("application/json", bytes)),
        Err(error) => Err(Error::Payload(Arc::new(error))),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
