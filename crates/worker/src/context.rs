use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use windlass_core::command::ReportProgress;
use windlass_core::{Fence, Kind, LaneName, Payload, Resumption, Task, TaskId, TaskKey};
use windlass_engine::{Engine, Error};

use crate::failure::Failure;
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
    deadline: watch::Receiver<Instant>,
    /// How often this run has asked to be suspended.
    requests: AtomicU32,
    resumption: Mutex<Option<Resumption>>,
}

impl Context {
    pub(crate) fn new(
        engine: Engine,
        task: Arc<Task>,
        payload: Option<Payload>,
        token: Token,
        deadline: watch::Receiver<Instant>,
    ) -> Self {
        let resumption = Mutex::new(task.resumption.clone());
        let requests = AtomicU32::new(0);
        Self(Arc::new(Inner { engine, task, payload, token, deadline, requests, resumption }))
    }

    /// Numbers a request to be suspended.
    pub(crate) fn next_request(&self) -> u32 {
        self.0.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn resumed(&self) -> Option<Resumption> {
        self.0.resumption.lock().expect("nothing panics while it holds it").clone()
    }

    pub(crate) fn go_on(&self, resumption: Resumption) {
        let mut last = self.0.resumption.lock().expect("nothing panics while it holds it");
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
        *self.0.deadline.borrow()
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
