use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::command::{Cancel, RequestCancel};
use windlass_core::{
    Execution, Kind, LaneName, Note, Rejection, Task, TaskId, TaskKey, Tenant, Timestamp, Turned,
    limits,
};

use crate::creation::Creation;
use crate::endings::Endings;
use crate::engine::Engine;
use crate::error::Error;
use crate::handle::TaskHandle;
use crate::posting::Posting;

/// A workflow to be: say what it should be, then await it.
#[must_use = "a workflow is started when this is awaited"]
pub struct Starting<'e, O> {
    creation: Creation<'e>,
    version: Option<String>,
    output: PhantomData<fn() -> O>,
}

/// A workflow that was started, to be watched and spoken to. It knows what its code returns.
pub struct WorkflowHandle<O = serde_json::Value> {
    engine: Engine,
    task: TaskHandle,
    output: PhantomData<fn() -> O>,
}

/// What a workflow says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub text: String,
    /// Rises with every change.
    pub change: u64,
}

impl Engine {
    /// Starts a workflow by the name of its code, which some worker has, with this input. Started
    /// again under the same id it is the same one, or a conflict if anything of it is another.
    pub fn start_workflow<O>(
        &self,
        name: impl Into<Kind>,
        input: &(impl Serialize + ?Sized),
    ) -> Starting<'_, O> {
        let creation = self.create(name).payload(input);
        Starting { creation, version: None, output: PhantomData }
    }

    /// To watch and speak to a workflow that was started before, perhaps by somebody else. Whether
    /// there is one is not asked before it is needed.
    pub fn workflow(&self, key: TaskKey) -> WorkflowHandle {
        WorkflowHandle::new(self.clone(), self.handle(key))
    }
}

impl<'e, O> Starting<'e, O> {
    fn with(self, set: impl FnOnce(Creation<'e>) -> Creation<'e>) -> Self {
        Self { creation: set(self.creation), ..self }
    }

    /// An id of the caller's own. Starting the same workflow again under it changes nothing.
    pub fn id(self, id: impl Into<TaskId>) -> Self {
        self.with(|creation| creation.id(id))
    }

    pub fn tenant(self, tenant: impl Into<Tenant>) -> Self {
        self.with(|creation| creation.tenant(tenant))
    }

    /// Its activities and children are in the same lane, unless they are given another.
    pub fn lane(self, lane: impl Into<LaneName>) -> Self {
        self.with(|creation| creation.lane(lane))
    }

    /// Higher ones go first within their lane.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|creation| creation.priority(priority))
    }

    pub fn label(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|creation| creation.label(name, value))
    }

    /// The version of its code. Only workers that have it take the workflow; any worker does,
    /// where none is named.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// How long it may take until it expires, wherever it stands.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|creation| creation.deadline(deadline))
    }

    /// Starts it only after so long.
    pub fn after(self, pause: Duration) -> Self {
        self.with(|creation| creation.after(pause))
    }

    /// How long it is kept once it has ended, and each of its executions.
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|creation| creation.retention(retention))
    }
}

impl<'e, O: 'e> IntoFuture for Starting<'e, O> {
    type Output = Result<WorkflowHandle<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'e>>;

    fn into_future(self) -> Self::IntoFuture {
        let engine = self.creation.engine().clone();
        let creation = self.creation.workflow(self.version);
        Box::pin(async move { Ok(WorkflowHandle::new(engine, creation.await?)) })
    }
}

impl<O> WorkflowHandle<O> {
    fn new(engine: Engine, task: TaskHandle) -> Self {
        Self { engine, task, output: PhantomData }
    }

    /// The same workflow, whose code returns this.
    pub fn returning<T>(self) -> WorkflowHandle<T> {
        WorkflowHandle::new(self.engine, self.task)
    }

    pub fn id(&self) -> &TaskId {
        self.task.id()
    }

    /// Where the workflow is.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn key(&self) -> &TaskKey {
        self.task.key()
    }

    /// Whether the workflow was there before.
    pub fn is_duplicate(&self) -> bool {
        self.task.is_duplicate()
    }

    /// The workflow as it is.
    pub async fn info(&self) -> Result<Arc<Task>, Error> {
        let task = self.task.task().await?;
        match &task.workflow {
            Some(_) => Ok(task),
            None => Err(Error::Rejected(Rejection::NotAWorkflow)),
        }
    }

    /// Waits until it has ended, however that is.
    pub async fn ended(&self) -> Result<Arc<Task>, Error> {
        self.task.ended().await
    }

    /// Waits until it has ended, and reads its result. [`Error::NotCompleted`] when it ended
    /// without one.
    pub async fn result(&self) -> Result<O, Error>
    where
        O: DeserializeOwned,
    {
        self.task.result().await
    }

    /// Sends it a message: say more about it, then await it. It waits until the code asks for it.
    pub fn signal(
        &self,
        name: impl Into<String>,
        payload: &(impl Serialize + ?Sized),
    ) -> Posting<'_> {
        let TaskKey { tenant, id } = self.key().clone();
        self.engine.post(id, name).tenant(tenant).payload(payload)
    }

    /// Asks it to end. Its code is told, and may clean up before it does.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), Error> {
        let ask = RequestCancel { task: self.key().clone(), reason: reason.into() };
        self.engine.submit(ask).await.map(drop)
    }

    /// Ends it at once. Its code is not asked, and what it has under way is cancelled.
    pub async fn terminate(&self, reason: impl Into<String>) -> Result<(), Error> {
        let cancel = Cancel { task: self.key().clone(), reason: reason.into() };
        self.engine.submit(cancel).await.map(drop)
    }

    /// Forgets it, with its history and its children: see [`Engine::delete_workflow`].
    pub async fn delete(&self, force: bool) -> Result<usize, Error> {
        self.engine.delete_workflow(self.key(), force).await
    }

    /// Forgets executions before the present one: see [`Engine::prune_executions`].
    pub async fn prune(&self, keep_last: u32, before: Option<Timestamp>) -> Result<usize, Error> {
        self.engine.prune_executions(self.key(), keep_last, before).await
    }

    /// What it says of itself, if it has said anything.
    pub async fn status(&self) -> Result<Option<Status>, Error> {
        let key = Note::key_of(&self.key().tenant, &self.key().id, Note::STATUS);
        let note = self.engine.one::<Note>(key).await?;
        Ok(note.map(|note| Status { text: note.text.clone(), change: note.change }))
    }

    /// Waits for a status that is newer than the change `after`; for any without one. None when
    /// the workflow has ended and there will be none.
    pub async fn wait_for_status(&self, after: Option<u64>) -> Result<Option<Status>, Error> {
        self.wait_until(|status| after.is_none_or(|after| status.change > after)).await
    }

    /// Waits for a status that is as it should be. None when the workflow has ended and its last
    /// is not. Of several that follow each other fast, only the last may be seen.
    pub async fn wait_until(
        &self,
        mut is_it: impl FnMut(&Status) -> bool,
    ) -> Result<Option<Status>, Error> {
        loop {
            // What happens from here on is not missed.
            let mut watch = Endings::watch(&self.engine, self.key()).await?;
            // Read first, so that the last word of one that has ended is not passed over.
            let task = self.info().await?;
            let status = self.status().await?.filter(&mut is_it);
            if status.is_some() || task.lifecycle.ended_at().is_some() {
                return Ok(status);
            }
            watch.changed().await;
        }
    }

    /// The values that it shows, as JSON, by their names.
    pub async fn values(&self) -> Result<Vec<Note>, Error> {
        let notes = self.engine.notes(self.key()).await?;
        Ok(notes.into_iter().filter(|note| note.name != Note::STATUS).collect())
    }

    /// One of its values.
    pub async fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let key = Note::key_of(&self.key().tenant, &self.key().id, name);
        let note = self.engine.one::<Note>(key).await?;
        note.map(|note| serde_json::from_str(&note.text).map_err(Error::payload)).transpose()
    }

    /// The history of its present execution: a row for each turn.
    pub async fn history(&self) -> Result<Vec<Turned>, Error> {
        self.engine.history(&*self.info().await?, 0).await
    }

    /// Its executions before the present one that are kept, in order.
    pub async fn executions(&self) -> Result<Vec<Execution>, Error> {
        let page = usize::try_from(limits::BULK.max).unwrap_or(usize::MAX);
        let mut all: Vec<Execution> = Vec::new();
        loop {
            let after = all.last().map(|last| last.number);
            let more = self.engine.executions(self.key(), after, page).await?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }
}

impl<O> Clone for WorkflowHandle<O> {
    fn clone(&self) -> Self {
        Self::new(self.engine.clone(), self.task.clone())
    }
}

impl<O> fmt::Debug for WorkflowHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowHandle").field("key", self.key()).finish_non_exhaustive()
    }
}

impl<O> fmt::Debug for Starting<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Starting").field("creation", &self.creation).finish_non_exhaustive()
    }
}
