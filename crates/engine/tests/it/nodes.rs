//! Nodes in a shared store, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{LogEvent, Node, NodeId, Payload, PayloadKey, StoredRow, Timestamp, Value};
use windlass_engine::{Config, Engine};
use windlass_store::{
    Clock, CommitId, Count, MemoryStore, Notifications, Query, RoundTripStats, Store,
    StoreDescription, StoreError, Tx,
};
use windlass_store_test::{Call, Failure, FaultStore};

use crate::stage::create;

/// A memory store that claims to be shared by nodes.
#[derive(Debug)]
struct Shared(MemoryStore);

#[async_trait]
impl Store for Shared {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        self.0.begin().await
    }

    async fn outcome(&self, commit_id: &CommitId) -> Result<bool, StoreError> {
        self.0.outcome(commit_id).await
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        self.0.query(query).await
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        self.0.count(count).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        self.0.payloads(keys).await
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        self.0.events(after, limit).await
    }

    fn notifications(&self) -> Notifications {
        self.0.notifications()
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        Ok(StoreDescription {
            round_trips: Some(RoundTripStats::default()),
            ..self.0.describe().await?
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.close().await
    }
}

/// A clock on tokio's virtual time.
#[derive(Debug)]
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn now(&self) -> Timestamp {
        let ms = u64::try_from(self.steady().as_millis()).unwrap();
        Timestamp::from_millis(1_000_000).plus_ms(ms)
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}

struct Cluster {
    clock: Arc<Virtual>,
    memory: MemoryStore,
}

impl Cluster {
    fn new() -> Self {
        let clock = Arc::new(Virtual(tokio::time::Instant::now()));
        Self { memory: MemoryStore::with_clock(clock.clone()), clock }
    }

    fn config(&self, name: &str) -> Config {
        let clock = self.clock.clone();
        Config { node_name: Some(name.to_owned()), clock, ..Config::default() }
    }

    async fn node(&self, name: &str) -> Engine {
        Engine::with_store(Shared(self.memory.another()), self.config(name)).await.unwrap()
    }

    async fn faulty(&self, name: &str) -> (Engine, FaultStore) {
        let store = FaultStore::new(Arc::new(Shared(self.memory.another())));
        let engine = Engine::with_store(store.clone(), self.config(name)).await.unwrap();
        (engine, store)
    }
}

async fn nodes(engine: &Engine) -> Vec<Arc<Node>> {
    engine.nodes(None, 100).await.unwrap()
}

async fn names(engine: &Engine) -> String {
    let names: Vec<String> = nodes(engine).await.iter().map(|node| node.name.clone()).collect();
    names.join(" ")
}

/// Advances virtual time; background tasks run meanwhile.
async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_on_an_embedded_store_sends_no_heartbeats() {
    let cluster = Cluster::new();
    let store = cluster.memory.another();
    let engine = Engine::with_store(store, cluster.config("alone")).await.unwrap();
    pass(3_600_000).await;
    assert_eq!(engine.describe().await.unwrap().commits, 0);
    assert_eq!(nodes(&engine).await, []);
    engine.shutdown().await.unwrap();
    assert_eq!(cluster.memory.snapshot().rows().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_background_work_sends_no_heartbeats() {
    let cluster = Cluster::new();
    let config = Config { background: false, ..cluster.config("quiet") };
    let engine = Engine::with_store(Shared(cluster.memory.another()), config).await.unwrap();
    pass(60_000).await;
    assert_eq!(nodes(&engine).await, []);
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nodes_are_listed_until_they_shut_down() {
    let cluster = Cluster::new();
    let one = cluster.node("one").await;
    pass(2_000).await;
    let two = cluster.node("two").await;
    pass(7_999).await;
    let listed = nodes(&two).await;
    let times = listed.iter().map(|node| {
        let since = |at: Timestamp| at.ms_until(cluster.clock.now());
        (
            node.name.as_str(),
            since(node.started_at),
            since(node.seen_at),
            node.heartbeat_interval_ms,
        )
    });
    // The third heartbeat of node one is due in 1 ms; node two has sent its second.
    let times: Vec<_> = times.collect();
    assert_eq!(times, [("one", 9_999, 4_999, 5_000), ("two", 7_999, 2_999, 5_000)]);
    assert_eq!(listed[0].pid, std::process::id());
    assert_eq!(listed[0].version, env!("CARGO_PKG_VERSION"));

    let first = one.nodes(None, 1).await.unwrap();
    let rest = one.nodes(Some(&first[0].id), 10).await.unwrap();
    assert_eq!([first, rest].concat(), listed);
    assert!(one.nodes(Some(&NodeId::from("z")), 10).await.unwrap().is_empty());

    one.shutdown().await.unwrap();
    assert_eq!(names(&two).await, "two", "the node deregistered");
    one.shutdown().await.unwrap();
    pass(3_600_000).await;
    assert_eq!(names(&two).await, "two");
    two.shutdown().await.unwrap();
    assert_eq!(cluster.memory.snapshot().rows().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_removed_by_another_node() {
    let cluster = Cluster::new();
    let (gone, stays) = (cluster.node("gone").await, cluster.node("stays").await);
    pass(1_000).await;
    assert_eq!(names(&stays).await, "gone stays");
    drop(gone);
    pass(16_400).await;
    assert_eq!(names(&stays).await, "gone stays", "its third heartbeat may be in flight");
    pass(200).await;
    assert_eq!(names(&stays).await, "stays");
}

/// For example after a SIGSTOP or a network outage.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_declared_dead_registers_again() {
    let cluster = Cluster::new();
    let (stopped, store) = cluster.faulty("stopped").await;
    let other = cluster.node("other").await;
    pass(1_000).await;
    let before = nodes(&other).await[0].clone();
    store.outage(Failure::Unavailable);
    pass(60_000).await;
    assert_eq!(names(&other).await, "other");
    store.recover();
    pass(2_000).await;
    let after = nodes(&other).await[0].clone();
    assert_eq!((&after.id, &after.name), (&before.id, &before.name));
    assert_eq!(after.started_at.millis(), before.started_at.millis());
    assert!(after.seen_at > before.seen_at);
    stopped.shutdown().await.unwrap();
    assert_eq!(names(&other).await, "other");
}

/// The last heartbeat may be in flight at shutdown.
#[tokio::test(start_paused = true)]
async fn an_in_flight_heartbeat_does_not_reregister_a_deregistered_node() {
    let cluster = Cluster::new();
    let other = cluster.node("other").await;
    let store = FaultStore::new(Arc::new(Shared(cluster.memory.another())));
    let config = Config { max_concurrent_batches: Some(2), ..cluster.config("leaves") };
    let engine = Engine::with_store(store.clone(), config).await.unwrap();
    pass(1_000).await;
    let mut held = store.pause_commit(1);
    held.reached().await;
    let leaving = tokio::spawn(async move { engine.shutdown().await });
    pass(1_000).await;
    held.release();
    leaving.await.unwrap().unwrap();
    assert_eq!(names(&other).await, "other");
}

/// Nor does a deferred heartbeat.
#[tokio::test(start_paused = true)]
async fn a_deferred_heartbeat_does_not_reregister_a_deregistered_node() {
    let cluster = Cluster::new();
    let other = cluster.node("other").await;
    let store = FaultStore::new(Arc::new(Shared(cluster.memory.another())));
    let config = Config { max_concurrent_batches: Some(2), ..cluster.config("leaves") };
    let engine = Engine::with_store(store.clone(), config).await.unwrap();
    pass(1_000).await;
    let (mut held, mut again) = (store.pause_commit(1), store.pause_commit(2));
    store.conflict(1);
    held.reached().await;
    pass(1_000).await;
    held.release();
    again.reached().await;
    let leaving = tokio::spawn(async move { engine.shutdown().await });
    pass(1_000).await;
    again.release();
    leaving.await.unwrap().unwrap();
    assert_eq!(names(&other).await, "other");
}

#[tokio::test(start_paused = true)]
async fn a_failed_registration_is_retried() {
    let cluster = Cluster::new();
    let (engine, store) = cluster.faulty("late").await;
    store.fail_times(Call::Describe, 2, Failure::Unavailable);
    let rejected = AtomicU32::new(0);
    store.reject_if(move |changes| {
        !changes.inserts.is_empty() && rejected.fetch_add(1, Ordering::Relaxed) < 2
    });
    pass(3_900).await;
    assert_eq!(names(&engine).await, "", "two describes and two registrations failed");
    pass(200).await;
    assert_eq!(names(&engine).await, "late");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_node_name_does_not_stop_the_engine() {
    let cluster = Cluster::new();
    let engine = cluster.node("two\nlines").await;
    pass(60_000).await;
    assert_eq!(nodes(&engine).await, []);
    engine.submit(create("t")).await.unwrap();
    engine.shutdown().await.unwrap();
}

/// A heartbeat is one small commit, and an idle node writes nothing else.
#[tokio::test(start_paused = true)]
async fn an_idle_node_commits_only_heartbeats() {
    let cluster = Cluster::new();
    let engines = [cluster.node("one").await, cluster.node("two").await];
    pass(59_000).await;
    for engine in engines {
        assert_eq!(engine.describe().await.unwrap().commits, 12, "one every five seconds");
    }
}
