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
    Execution, Kind, LaneName, Rejection, Task, TaskId, TaskKey, Tenant, Timestamp, TurnRecord,
    WorkflowProperty, limits,
};

use crate::engine::Engine;
use crate::error::Error;
use crate::signal_builder::SignalBuilder;
use crate::task_builder::TaskBuilder;
use crate::task_handle::TaskHandle;
use crate::task_watch::TaskWatch;

/// A builder for a workflow: set its options, then await it.
#[must_use = "a workflow is started when this is awaited"]
pub struct WorkflowBuilder<'e, O> {
    builder: TaskBuilder<'e>,
    version: Option<String>,
    output: PhantomData<fn() -> O>,
}

/// A handle to a started workflow, typed by its output.
pub struct WorkflowHandle<O = serde_json::Value> {
    engine: Engine,
    task: TaskHandle,
    output: PhantomData<fn() -> O>,
}

/// The published status of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowStatus {
    pub text: String,
    /// Incremented by every change.
    pub revision: u64,
}

impl Engine {
    /// Starts a workflow by name with this input. A repetition under the same id returns the same
    /// workflow, or a conflict if anything differs.
    pub fn start_workflow_named<O>(
        &self,
        name: impl Into<Kind>,
        input: &(impl Serialize + ?Sized),
    ) -> WorkflowBuilder<'_, O> {
        let builder = self.create(name).payload(input);
        WorkflowBuilder { builder, version: None, output: PhantomData }
    }

    /// A handle to an existing workflow, started by any process. Its existence is checked on use.
    pub fn workflow(&self, key: TaskKey) -> WorkflowHandle {
        WorkflowHandle::new(self.clone(), self.handle(key))
    }
}

impl<'e, O> WorkflowBuilder<'e, O> {
    fn with(self, set: impl FnOnce(TaskBuilder<'e>) -> TaskBuilder<'e>) -> Self {
        Self { builder: set(self.builder), ..self }
    }

    /// Sets the workflow id. Starting an identical workflow again under it changes nothing.
    pub fn id(self, id: impl Into<TaskId>) -> Self {
        self.with(|builder| builder.id(id))
    }

    pub fn tenant(self, tenant: impl Into<Tenant>) -> Self {
        self.with(|builder| builder.tenant(tenant))
    }

    /// Sets the lane, which is also the default lane of its activities and children.
    pub fn lane(self, lane: impl Into<LaneName>) -> Self {
        self.with(|builder| builder.lane(lane))
    }

    /// Sets the priority; higher values run first within their lane.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|builder| builder.priority(priority))
    }

    pub fn label(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|builder| builder.label(name, value))
    }

    /// Sets the version of its code. Only workers with this version claim the workflow; without
    /// one, any worker may.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets the time after builder at which the workflow expires, in any state.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|builder| builder.deadline(deadline))
    }

    /// Delays the start.
    pub fn after(self, delay: Duration) -> Self {
        self.with(|builder| builder.after(delay))
    }

    /// Sets how long the workflow and its past executions are retained after they have ended.
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|builder| builder.retention(retention))
    }
}

impl<'e, O> From<WorkflowBuilder<'e, O>> for TaskBuilder<'e> {
    fn from(workflow: WorkflowBuilder<'e, O>) -> Self {
        workflow.builder.workflow(workflow.version)
    }
}

impl<'e, O: 'e> IntoFuture for WorkflowBuilder<'e, O> {
    type Output = Result<WorkflowHandle<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'e>>;

    fn into_future(self) -> Self::IntoFuture {
        let engine = self.builder.engine().clone();
        let task = TaskBuilder::from(self);
        Box::pin(async move { Ok(WorkflowHandle::new(engine, task.await?)) })
    }
}

impl<O> WorkflowHandle<O> {
    fn new(engine: Engine, task: TaskHandle) -> Self {
        Self { engine, task, output: PhantomData }
    }

    /// The same handle with another output type.
    pub fn returning<T>(self) -> WorkflowHandle<T> {
        WorkflowHandle::new(self.engine, self.task)
    }

    pub fn id(&self) -> &TaskId {
        self.task.id()
    }

    /// The engine of this handle.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn key(&self) -> &TaskKey {
        self.task.key()
    }

    /// Whether the workflow already existed.
    pub fn is_duplicate(&self) -> bool {
        self.task.is_duplicate()
    }

    /// The current task record.
    pub async fn task(&self) -> Result<Arc<Task>, Error> {
        let task = self.task.task().await?;
        match &task.workflow {
            Some(_) => Ok(task),
            None => Err(Error::Rejected(Rejection::NotAWorkflow)),
        }
    }

    /// Waits until the workflow has ended in any state.
    pub async fn wait(&self) -> Result<Arc<Task>, Error> {
        self.task.wait().await
    }

    /// Waits until the workflow has ended, and decodes its result. [`Error::NotCompleted`] if it
    /// ended without one.
    pub async fn result(&self) -> Result<O, Error>
    where
        O: DeserializeOwned,
    {
        self.task.result().await
    }

    /// Sends a signal: set its options, then await it. It waits in the mailbox until it is read.
    pub fn signal(
        &self,
        name: impl Into<String>,
        payload: &(impl Serialize + ?Sized),
    ) -> SignalBuilder<'_> {
        let TaskKey { tenant, id } = self.key().clone();
        self.engine.signal(id, name).tenant(tenant).payload(payload)
    }

    /// Requests cancellation. The code is notified and may clean up first.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), Error> {
        let request = RequestCancel { task: self.key().clone(), reason: reason.into() };
        self.engine.submit(request).await.map(drop)
    }

    /// Terminates the workflow immediately and cancels its activities. Its code
    /// gets no chance to clean up; child workflows get a cancellation request.
    pub async fn terminate(&self, reason: impl Into<String>) -> Result<(), Error> {
        let cancel = Cancel { task: self.key().clone(), reason: reason.into() };
        self.engine.submit(cancel).await.map(drop)
    }

    /// Deletes the workflow, its history and its children: see [`Engine::delete_workflow`].
    pub async fn delete(&self, force: bool) -> Result<usize, Error> {
        self.engine.delete_workflow(self.key(), force).await
    }

    /// Deletes past executions: see [`Engine::prune_executions`].
    pub async fn prune(&self, keep_last: u32, before: Option<Timestamp>) -> Result<usize, Error> {
        self.engine.prune_executions(self.key(), keep_last, before).await
    }

    /// The published status, if any.
    pub async fn status(&self) -> Result<Option<WorkflowStatus>, Error> {
        let key =
            WorkflowProperty::key_of(&self.key().tenant, &self.key().id, WorkflowProperty::STATUS);
        let property = self.engine.one::<WorkflowProperty>(key).await?;
        Ok(property.map(|property| WorkflowStatus {
            text: property.text.clone(),
            revision: property.revision,
        }))
    }

    /// Waits for a status with a revision above `after`, or for any status. None if the
    /// workflow ends without one.
    pub async fn wait_for_status(
        &self,
        after: Option<u64>,
    ) -> Result<Option<WorkflowStatus>, Error> {
        self.wait_until(|status| after.is_none_or(|after| status.revision > after)).await
    }

    /// Waits for a status that matches the predicate. None if the workflow has ended and its last
    /// status does not match. Intermediate statuses may be missed.
    pub async fn wait_until(
        &self,
        mut matches: impl FnMut(&WorkflowStatus) -> bool,
    ) -> Result<Option<WorkflowStatus>, Error> {
        loop {
            // Changes after this call are not missed.
            let mut waiter = TaskWatch::register(&self.engine, self.key()).await?;
            // Read before the status, so that the last status of an ended workflow is seen.
            let task = self.task().await?;
            let status = self.status().await?.filter(&mut matches);
            if status.is_some() || task.lifecycle.ended_at().is_some() {
                return Ok(status);
            }
            waiter.notified().await;
        }
    }

    /// The published values, as JSON, by name.
    pub async fn properties(&self) -> Result<Vec<WorkflowProperty>, Error> {
        let properties = self.engine.properties(self.key()).await?;
        Ok(properties
            .into_iter()
            .filter(|property| property.name != WorkflowProperty::STATUS)
            .collect())
    }

    /// One published value.
    pub async fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let key = WorkflowProperty::key_of(&self.key().tenant, &self.key().id, name);
        let property = self.engine.one::<WorkflowProperty>(key).await?;
        property
            .map(|property| serde_json::from_str(&property.text).map_err(Error::payload))
            .transpose()
    }

    /// The history of the current execution: one row per turn.
    pub async fn history(&self) -> Result<Vec<TurnRecord>, Error> {
        self.engine.history(&*self.task().await?, 0).await
    }

    /// The retained past executions, in order.
    pub async fn executions(&self) -> Result<Vec<Execution>, Error> {
        let page = usize::try_from(limits::CREATE_TASKS.max).unwrap_or(usize::MAX);
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

impl<O> fmt::Debug for WorkflowBuilder<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowBuilder").field("builder", &self.builder).finish_non_exhaustive()
    }
}
