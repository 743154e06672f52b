use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_core::command::{Create, NewTask};
use windlass_core::{ChangeSet, LogEvent, Payload, RetryPolicy, Task, TaskKey, Tenant, Timestamp};
use windlass_engine::{Config, Engine};
use windlass_store::{Clock, MemoryStore, Store};
use windlass_store_test::FaultStore;
use windlass_worker::Worker;

/// Longer than anything takes here, by a clock that advances only when all tasks are idle.
pub(crate) const EVER: Duration = Duration::from_secs(3_600);

/// A clock for stores that follows the timers of the runtime.
#[derive(Debug)]
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.0.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(1_000_000_000_000 + micros)
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Two engines on one store, whose clock is that of the runtime.
pub(crate) struct Stage {
    pub(crate) memory: MemoryStore,
    /// Under the worker's engine.
    pub(crate) faults: FaultStore,
    /// The worker's engine.
    pub(crate) engine: Engine,
    /// The engine of all other callers.
    pub(crate) other: Engine,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        Self::of(config.clone(), config).await
    }

    /// With this configuration of the other engine.
    pub(crate) async fn beside(other: Config) -> Self {
        Self::of(Config::default(), other).await
    }

    async fn of(config: Config, other: Config) -> Self {
        let clock = Arc::new(RuntimeClock(Instant::now()));
        let config = Config { clock: clock.clone(), ..config };
        let other = Config { clock: clock.clone(), ..other };
        let memory = MemoryStore::with_clock(clock);
        let faults = FaultStore::new(Arc::new(memory.another()));
        let engine = Engine::with_store(faults.clone(), config).await.unwrap();
        let other = Engine::with_store(memory.another(), other).await.unwrap();
        Self { memory, faults, engine, other }
    }

    pub(crate) fn worker(&self) -> Worker {
        Worker::new(self.engine.clone(), "w")
    }

    /// Creates a task of kind `k` with two attempts, a minute apart.
    pub(crate) async fn create(&self, id: &str, payload: &str) {
        let mut new = new_task(id, payload);
        new.policy.retry = Some(RetryPolicy::fixed(2, 60_000));
        self.other.submit(Create::one(new)).await.unwrap();
    }

    /// Changes stored data without an engine.
    pub(crate) async fn tamper(&self, changes: ChangeSet) {
        let tx = self.memory.another().begin().await.unwrap();
        tx.commit(Arc::new(changes)).await.unwrap();
    }

    pub(crate) async fn task(&self, id: &str) -> Arc<Task> {
        self.other.task(&key(id)).await.unwrap().unwrap()
    }

    pub(crate) async fn result(&self, id: &str) -> Option<String> {
        let result = self.other.result(&key(id)).await.unwrap();
        result.map(|payload| String::from_utf8(payload.bytes.to_vec()).unwrap())
    }

    pub(crate) fn events(&self, id: &str) -> Vec<LogEvent> {
        let of_task =
            |entry: &LogEvent| entry.task.as_ref().is_some_and(|task| task.as_str() == id);
        self.memory.snapshot().events_after(0).filter(of_task).collect()
    }

    /// The names of the log events of a task.
    pub(crate) fn history(&self, id: &str) -> String {
        let names: Vec<_> = self.events(id).into_iter().map(|entry| entry.name).collect();
        names.join(" ")
    }

    /// Waits for a log event of a task.
    pub(crate) async fn until(&self, id: &str, change: &str) {
        let mut log = self.other.subscribe(None).await.unwrap();
        let wait = async {
            while !self.events(id).iter().any(|entry| entry.name == change) {
                log.next().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(EVER, wait).await;
        waited.unwrap_or_else(|_| panic!("{id} was never {change}: {}", self.history(id)));
    }
}

pub(crate) fn new_task(id: &str, payload: &str) -> NewTask {
    NewTask { payload: Some(Payload::json(payload)), ..NewTask::new(id, "k") }
}

pub(crate) fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}

/// Lets handlers signal that they have reached a point.
pub(crate) fn signal() -> (mpsc::UnboundedSender<Instant>, Hearing) {
    let (said, hear) = mpsc::unbounded_channel();
    (said, Hearing(hear))
}

pub(crate) struct Hearing(mpsc::UnboundedReceiver<Instant>);

impl Hearing {
    /// The next time that a handler sent; none if no sender is left.
    pub(crate) async fn next(&mut self) -> Option<Instant> {
        tokio::time::timeout(EVER, self.0.recv()).await.expect("a handler reaches that point")
    }
}
