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
use windlass_engine::{Creation, Engine, Error, TaskHandle};

use crate::failure::Failure;
use crate::lease::Deadline;
use crate::token::Token;

/// What a handler knows of the attempt that it makes. Clones are cheap and share it.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    task: Arc<Task>,
    payload: Option<Payload>,
    token: Token,
    deadline: Deadline,
    waits: Arc<Waits>,
}

/// What is known of the waits of an attempt under one lease, however often its handler is run.
#[derive(Debug)]
pub(crate) struct Waits {
    /// How often it was asked to suspend the task.
    requests: AtomicU32,
    /// What last let the attempt go on.
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
        token: Token,
        deadline: Deadline,
        waits: Arc<Waits>,
    ) -> Self {
        Self(Arc::new(Inner { engine, task, payload, token, deadline, waits }))
    }

    /// Numbers a request to be suspended.
    pub(crate) fn next_request(&self) -> u32 {
        self.0.waits.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn resumed(&self) -> Option<Resumption> {
        self.0.waits.resumption.lock().expect("nothing panics while it holds it").clone()
    }

    pub(crate) fn go_on(&self, resumption: Resumption) {
        let mut last = self.0.waits.resumption.lock().expect("nothing panics while it holds it");
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

    /// How often the task was replayed before.
    pub fn generation(&self) -> u32 {
        self.0.task.generation
    }

    /// Which attempt this is, from one.
    pub fn attempt(&self) -> u32 {
        self.0.task.attempts
    }

    /// Names this run for good: no other run of any task has the same fence.
    pub fn fence(&self) -> Fence {
        self.0.task.fence()
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.0.task.labels
    }

    /// The payload as it was given; none when the task was created without one.
    pub fn payload(&self) -> Option<&Payload> {
        self.0.payload.as_ref()
    }

    /// The engine that the task came from, as for creating what is to be done next.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Tells, durably, how far this attempt is. Whoever looks at the task sees the last report.
    ///
    /// Refused when the lease is lost or the task has ended: a good moment to stop.
    pub async fn progress(&self, percent: u8, message: impl Into<String>) -> Result<(), Error> {
        let report = ReportProgress { fence: self.fence(), percent, message: message.into() };
        self.0.engine.submit(report).await.map(drop)
    }

    /// Creates a child of this task, in its lane unless another is said: say what it should be,
    /// then await it.
    ///
    /// The name tells the children of one task apart. A handler that runs again, as after a
    /// failure or after [`Context::wait_children`], finds the child that it made under this name
    /// before; asking for another one under it is a conflict. A task that is replayed makes its
    /// children afresh.
    pub fn spawn_child(&self, name: &str, kind: impl Into<Kind>) -> Creation<'_> {
        let child = self.child_key(name);
        let creation = self.0.engine.create(kind).tenant(child.tenant).id(child.id);
        creation.lane(self.lane().clone()).parent(self.id().clone())
    }

    /// A child that was made under this name, or will be.
    pub fn child(&self, name: &str) -> TaskHandle {
        self.0.engine.handle(self.child_key(name))
    }

    /// Waits until every child of this task has ended, however that is, and says how they did.
    ///
    /// While one is open this run of the handler is over: the error is to be passed on, as with
    /// `?`, and the task waits without a lease and without a worker. When the last child has
    /// ended the handler runs again from its start, as the same attempt; what it has spawned is
    /// there, and this returns at once. While nobody awaits them children may also be left to
    /// themselves: a task can end before they do.
    pub async fn wait_children(&self) -> Result<ChildCounts, Failure> {
        let counts = self.0.engine.child_counts(&self.key()).await?;
        if counts.open > 0 { Err(Failure::wait_children()) } else { Ok(counts) }
    }

    /// The id of the task of this name: no two names, and no two generations, have the same.
    fn child_key(&self, name: &str) -> TaskKey {
        let task = &self.0.task;
        let name = name.replace('%', "%25").replace('/', "%2F").replace('~', "%7E");
        let id = match task.generation {
            0 => format!("{}/{name}", task.id),
            generation => format!("{}/{name}~{generation}", task.id),
        };
        TaskKey::new(&task.tenant, &id.into())
    }

    /// To end this attempt with: try again after so long, while attempts are left.
    pub fn retry_after(&self, pause: Duration, reason: impl fmt::Display) -> Failure {
        Failure::retry_after(reason, pause)
    }

    /// To end this attempt with: never try again.
    pub fn give_up(&self, reason: impl fmt::Display) -> Failure {
        Failure::give_up(reason)
    }

    /// Until when the lease is surely held, by this machine's own clock. It moves with every
    /// renewal.
    pub fn lease_deadline(&self) -> Instant {
        self.0.deadline.at()
    }

    /// Whether to stop: the lease is lost, the task was cancelled, or the worker is at its end.
    pub fn is_cancelled(&self) -> bool {
        self.0.token.is_cancelled()
    }

    /// Waits until it is time to stop. The handler has a moment from then on before it is dropped.
    pub async fn cancelled(&self) {
        self.0.token.cancelled().await;
    }
}
