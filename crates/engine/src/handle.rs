use std::sync::Arc;

use serde::de::DeserializeOwned;
use windlass_core::command::Cancel;
use windlass_core::{Lifecycle, Rejection, Task, TaskId, TaskKey, Why};

use crate::endings::Endings;
use crate::engine::Engine;
use crate::error::Error;

/// A task that was created, to be watched.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    engine: Engine,
    key: TaskKey,
    duplicate: bool,
}

impl Engine {
    /// To watch a task that was created before, perhaps by somebody else.
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

    /// Whether the task was there before.
    pub fn is_duplicate(&self) -> bool {
        self.duplicate
    }

    /// The task as it is.
    pub async fn task(&self) -> Result<Arc<Task>, Error> {
        let task = self.engine.task(&self.key).await?;
        task.ok_or(Error::Rejected(Rejection::TaskNotFound))
    }

    /// Why it is not further than it is.
    pub async fn why(&self) -> Result<Why, Error> {
        let why = self.engine.why(&self.key).await?;
        why.ok_or(Error::Rejected(Rejection::TaskNotFound))
    }

    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), Error> {
        let cancel = Cancel { task: self.key.clone(), reason: reason.into() };
        self.engine.submit(cancel).await.map(drop)
    }

    /// Waits until it has ended, however that is. Any number of tasks can be waited for at once.
    pub async fn ended(&self) -> Result<Arc<Task>, Error> {
        loop {
            // What happens from here on is not missed.
            let mut watch = Endings::watch(&self.engine, &self.key).await?;
            let task = self.task().await?;
            if task.lifecycle.ended_at().is_some() {
                return Ok(task);
            }
            watch.changed().await;
        }
    }

    /// Waits until it has ended, and reads its result. [`Error::NotCompleted`] when it ended
    /// without one.
    pub async fn result<O: DeserializeOwned>(&self) -> Result<O, Error> {
        let task = self.ended().await?;
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
