use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::command::ReportProgress;
use windlass_core::{
    ChildCounts, Fence, Kind, LaneName, Payload, Resumption, Task, TaskId, TaskKey,
};
use windlass_engine::{Engine, Error, TaskBuilder, TaskHandle};

use crate::cancellation_token::CancellationToken;
use crate::failure::Failure;
use crate::lease::Deadline;

/// The attempt that a handler runs. Clones are cheap and share its state.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    task: Arc<Task>,
    payload: Option<Payload>,
    token: CancellationToken,
    deadline: Deadline,
    waits: Arc<Waits>,
}

/// The waits of an attempt under one lease, shared by all runs of its handler.
#[derive(Debug)]
pub(crate) struct Waits {
    /// The number of suspend requests sent.
    requests: AtomicU32,
    /// What last resumed the attempt.
    resumption: Mutex<Option<Resumption>>,
}

impl Waits {
    pub(crate) fn of(task: &Task) -> Self {
        let resumption = Mutex::new(task.resumption.clone());
        Self { requests: AtomicU32::new(0), resumption }
    }
}

impl Context {
    pub(crate) fn new(
        engine: Engine,
        task: Arc<Task>,
        payload: Option<Payload>,
        token: CancellationToken,
        deadline: Deadline,
        waits: Arc<Waits>,
    ) -> Self {
        Self(Arc::new(Inner { engine, task, payload, token, deadline, waits }))
    }

    /// The number of the next suspend request.
    pub(crate) fn next_request(&self) -> u32 {
        self.0.waits.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn resumed(&self) -> Option<Resumption> {
        self.0.waits.resumption.lock().expect("no panic while the lock is held").clone()
    }

    pub(crate) fn set_resumed(&self, resumption: Resumption) {
        let mut last = self.0.waits.resumption.lock().expect("no panic while the lock is held");
        *last = Some(resumption);
    }

    pub fn id(&self) -> &TaskId {
        &self.0.task.id
    }

    pub fn key(&self) -> TaskKey {
        self.0.task.task_key()
    }

    pub fn kind(&self) -> &Kind {
        &self.0.task.kind
    }

    pub fn lane(&self) -> &LaneName {
        &self.0.task.lane
    }

    /// The number of times the task was replayed.
    pub fn execution(&self) -> u32 {
        self.0.task.execution
    }

    /// The number of this attempt, starting at 1.
    pub fn attempt(&self) -> u32 {
        self.0.task.attempts
    }

    /// Identifies the lease of this attempt: no other lease of any task has the same fence.
    pub fn fence(&self) -> Fence {
        self.0.task.fence()
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.0.task.labels
    }

    /// The payload as stored; none if the task was created without one.
    pub fn payload(&self) -> Option<&Payload> {
        self.0.payload.as_ref()
    }

    /// The engine of the task, for example to create follow-up tasks.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Reports the progress of this attempt durably. The task shows the last report.
    ///
    /// Rejected if the lease is lost or the task has ended; the handler should stop then.
    pub async fn progress(&self, percent: u8, message: impl Into<String>) -> Result<(), Error> {
        let report = ReportProgress { fence: self.fence(), percent, message: message.into() };
        self.0.engine.submit(report).await.map(drop)
    }

    /// Creates a child of this task, by default in the task's lane: configure it, then await it.
    ///
    /// The name identifies the child within its parent. A handler that runs again, for example
    /// after a failure or after [`Context::wait_children`], gets the child that it created under
    /// this name; a different task under the same name is a conflict. A replayed task creates its
    /// children anew.
    pub fn spawn_child(&self, name: &str, kind: impl Into<Kind>) -> TaskBuilder<'_> {
        let child = self.child_key(name);
        let creation = self.0.engine.create(kind).tenant(child.tenant).id(child.id);
        creation.lane(self.lane().clone()).parent(self.id().clone())
    }

    /// A handle to the child with this name. The child need not exist yet.
    pub fn child(&self, name: &str) -> TaskHandle {
        self.0.engine.handle(self.child_key(name))
    }

    /// Waits until every child of this task has ended, in any state, and returns their counts.
    ///
    /// While a child is open this returns an error that the handler must pass on, as with `?`.
    /// The run ends, and the task waits without a lease and without a worker. When the last child
    /// has ended, the handler runs again from its start, as the same attempt: its children exist,
    /// and this returns at once. Waiting is optional: a task can end before its children.
    pub async fn wait_children(&self) -> Result<ChildCounts, Failure> {
        let counts = self.0.engine.child_counts(&self.key()).await?;
        if counts.open > 0 { Err(Failure::wait_children()) } else { Ok(counts) }
    }

    /// The id of the child with this name. Ids are distinct across names and executions.
    fn child_key(&self, name: &str) -> TaskKey {
        let task = &self.0.task;
        let name = name.replace('%', "%25").replace('/', "%2F").replace('~', "%7E");
        let id = match task.execution {
            0 => format!("{}/{name}", task.id),
            execution => format!("{}/{name}~{execution}", task.id),
        };
        TaskKey::new(&task.tenant, &id.into())
    }

    /// A failure that retries the task after `delay`, while attempts are left.
    pub fn retry_after(&self, delay: Duration, reason: impl fmt::Display) -> Failure {
        Failure::retry_after(reason, delay)
    }

    /// A failure that is never retried.
    pub fn non_retryable(&self, reason: impl fmt::Display) -> Failure {
        Failure::non_retryable(reason)
    }

    /// The time until which the lease is held for certain, by this machine's clock. Renewals and
    /// heartbeats extend it.
    pub fn lease_deadline(&self) -> Instant {
        self.0.deadline.at()
    }

    /// Whether to stop: the lease is lost, the task was cancelled, or the worker is stopping.
    pub fn is_cancelled(&self) -> bool {
        self.0.token.is_cancelled()
    }

    /// Waits until the handler should stop. It is dropped at most one second after that.
    pub async fn cancelled(&self) {
        self.0.token.cancelled().await;
    }
}
