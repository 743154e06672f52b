use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Claim, Complete, Create, NewTask};
use windlass_core::{Fence, Outcome, TaskKey, Tenant, Timestamp};
use windlass_engine::{ClaimedTask, Config, Engine};
use windlass_store::{ManualClock, MemoryStore, Store};

/// An engine without background work, on a store with a stopped clock.
pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) memory: MemoryStore,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) fn quiet() -> Config {
    Config { background: false, ..Config::default() }
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)))
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(quiet()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let clock = clock();
        let memory = MemoryStore::with_clock(clock.clone());
        let engine = Engine::with_store(memory.another(), config).await.unwrap();
        Self { engine, memory, clock }
    }

    /// A second engine on the same records, with its store wrapped by `wrap`.
    pub(crate) async fn second(
        &self,
        wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Engine {
        let store = wrap(Arc::new(self.memory.another()));
        Engine::with_shared_store(store, quiet()).await.unwrap()
    }
}

pub(crate) fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}

/// The fence of the `nth` claim of a task.
pub(crate) async fn fence(engine: &Engine, id: &str, nth: u64) -> Fence {
    let task = engine.task(&key(id)).await.unwrap();
    Fence { task: key(id), epoch: task.map_or(0, |task| task.epoch - u64::from(task.claims)) + nth }
}

pub(crate) fn create(id: &str) -> Create {
    Create::one(NewTask::new(id, "k"))
}

pub(crate) async fn complete(engine: &Engine, id: &str, nth: u64) -> Complete {
    Complete { fence: fence(engine, id, nth).await, result: None }
}

pub(crate) fn claim() -> Claim {
    Claim::new("w")
}

pub(crate) fn ids(claimed: &[ClaimedTask]) -> Vec<String> {
    claimed.iter().map(|claimed| claimed.task.id.to_string()).collect()
}

pub(crate) async fn claim_now(engine: &Engine) -> Vec<ClaimedTask> {
    engine.claim(claim(), Duration::ZERO).await.unwrap()
}

pub(crate) fn created(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Created(created) if !created[0].duplicate)
}

/// Yields until `done`. The tests run on one thread, so yielding is enough.
pub(crate) async fn until(done: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition was never met");
}
