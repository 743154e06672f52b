use std::sync::Arc;

use serde::de::DeserializeOwned;
use windlass_core::command::Cancel;
use windlass_core::{Lifecycle, Rejection, Task, TaskId, TaskKey, Why};

use crate::engine::Engine;
use crate::error::Error;
use crate::task_watch::TaskWatch;

/// A handle to watch a task.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    engine: Engine,
    key: TaskKey,
    duplicate: bool,
}

impl Engine {
    /// A handle to an existing task, which any process may have created.
    pub fn handle(&self, key: TaskKey) -> TaskHandle {
        TaskHandle::new(self.clone(), key, true)
    }
}

impl TaskHandle {
    pub(crate) fn new(engine: Engine, key: TaskKey, duplicate: bool) -> Self {
        Self { engine, key, duplicate }
    }

    pub fn id(&self) -> &TaskId {
        &self.key.id
    }

    pub fn key(&self) -> &TaskKey {
        &self.key
    }

    /// Whether the task already existed.
    pub fn is_duplicate(&self) -> bool {
        self.duplicate
    }

    /// The current task record.
    pub async fn task(&self) -> Result<Arc<Task>, Error> {
        let task = self.engine.task(&self.key).await?;
        task.ok_or(Error::Rejected(Rejection::TaskNotFound))
    }

    /// Why the task does not progress.
    pub async fn why(&self) -> Result<Why, Error> {
        let why = self.engine.why(&self.key).await?;
        why.ok_or(Error::Rejected(Rejection::TaskNotFound))
    }

    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), Error> {
        let cancel = Cancel { task: self.key.clone(), reason: reason.into() };
        self.engine.submit(cancel).await.map(drop)
    }

    /// Waits until the task has ended in any state. Many tasks can be awaited concurrently.
    pub async fn wait(&self) -> Result<Arc<Task>, Error> {
        loop {
            // Changes after this call are not missed.
            let mut waiter = TaskWatch::register(&self.engine, &self.key).await?;
            let task = self.task().await?;
            if task.lifecycle.ended_at().is_some() {
                return Ok(task);
            }
            waiter.notified().await;
        }
    }

    /// Waits until the task has ended, and decodes its result. [`Error::NotCompleted`] if it ended
    /// without one.
    pub async fn result<O: DeserializeOwned>(&self) -> Result<O, Error> {
        let task = self.wait().await?;
        let reason = match &task.lifecycle {
            Lifecycle::Completed { .. } => return self.read(&task).await,
            Lifecycle::Failed { reason, .. } | Lifecycle::Cancelled { reason, .. } => reason,
            _ => "",
        };
        let (id, state) = (task.id.clone(), task.lifecycle.public());
        Err(Error::NotCompleted { id, state, reason: reason.into() })
    }

    async fn read<O: DeserializeOwned>(&self, task: &Task) -> Result<O, Error> {
        let result = match task.result_key() {
            Some(key) => self.engine.payload(&key).await?,
            None => None,
        };
        let bytes = result.as_ref().map_or(&b"null"[..], |payload| &payload.bytes);
        serde_json::from_slice(bytes).map_err(|error| Error::Payload(Arc::new(error)))
    }
}
