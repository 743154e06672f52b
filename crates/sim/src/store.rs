use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::task::yield_now;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, StoredRow, Table, Timestamp,
    Update, Value,
};
use windlass_store::{
    CommitId, Count, MemoryStore, Notifications, Query, Store, StoreDescription, StoreError, Tx,
};
use windlass_store_test::{FaultStore, Random};

use crate::coverage::CoverageEvent;
use crate::node::SimContext;
use crate::script::{Point, ProcessFault};
use crate::watch::Watch;

/// The store of one node: a handle on the shared records with random delays and injected faults,
/// which shows every commit to the model.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) faults: FaultStore,
    memory: Arc<MemoryStore>,
    watch: Watch,
    /// The workflow worker of the same node.
    worker: String,
    waits: Arc<AtomicU64>,
    deaf: bool,
    /// Whether a commit succeeded whose caller has no answer yet.
    pub(crate) untold: Arc<AtomicBool>,
    trap: Arc<Mutex<Trap>>,
}

impl SimStore {
    pub(crate) fn new(context: &SimContext, worker: String, seed: u64, deaf: bool) -> Self {
        let (memory, watch) = (Arc::new(context.memory.another()), context.watch.clone());
        Self {
            worker,
            faults: FaultStore::new(memory.clone()),
            memory,
            watch,
            waits: Arc::new(AtomicU64::new(seed)),
            deaf,
            untold: Arc::default(),
            trap: Arc::default(),
        }
    }

    /// Yields to other tasks: mostly briefly, sometimes for long.
    async fn wait(&self) {
        let mut random = Random::new(self.waits.fetch_add(1, Ordering::Relaxed));
        let turns = *random.pick(&[0, 0, 0, 1, 1, 2, 4, 24]);
        for _ in 0..turns {
            yield_now().await;
        }
    }
}

/// Where a process is to be caught, and whether it is.
#[derive(Debug, Default)]
enum Trap {
    #[default]
    None,
    Set(Point, ProcessFault),
    Sprung(ProcessFault),
}

impl SimStore {
    /// Catches the process when it next reaches this point.
    pub(crate) fn set_trap(&self, point: Point, fault: ProcessFault) {
        *self.trap() = Trap::Set(point, fault);
    }

    /// The fault of a process that reached its trap, which is cleared.
    pub(crate) fn caught(&self) -> Option<ProcessFault> {
        let mut trap = self.trap();
        let Trap::Sprung(fault) = *trap else { return None };
        *trap = Trap::None;
        Some(fault)
    }

    pub(crate) fn disarm(&self) {
        *self.trap() = Trap::None;
    }

    fn trap(&self) -> MutexGuard<'_, Trap> {
        self.trap.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Counts conflicts on the counters of children and concurrency limits.
    fn note_race(&self, changes: &ChangeSet) {
        let tables = self.memory.snapshot();
        let stale = |update: &&Update| {
            let mut rows = tables.rows().filter(|row| row.key == update.row.key);
            rows.next().is_none_or(|row| row.version != update.expected)
        };
        let mut seen = self.watch.see();
        for update in changes.updates.iter().filter(stale) {
            match update.row.key.table {
                Table::Children => seen.count(CoverageEvent::FamilyRaced),
                Table::ConcurrencyLimit => seen.count(CoverageEvent::LimitRaced),
                _ => {}
            }
        }
    }

    /// Reaches a point: with a trap set, it waits until the driver has seen it.
    async fn pass(&self, point: Point) {
        {
            let mut trap = self.trap();
            match *trap {
                Trap::Set(at, fault) if at == point => *trap = Trap::Sprung(fault),
                _ => return,
            }
        }
        while matches!(*self.trap(), Trap::Sprung(_)) {
            yield_now().await;
        }
    }
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimStore")
    }
}

#[async_trait]
impl Store for SimStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        self.wait().await;
        let inner = self.faults.begin().await?;
        let (view, begins_at) = {
            let mut seen = self.watch.see();
            let begins_at = seen.model.begins_at(inner.now(), &self.worker);
            (seen.model.last_seq(), begins_at)
        };
        self.wait().await;
        drop(begins_at);
        Ok(Box::new(SimTx { inner, store: self.clone(), view }))
    }

    async fn outcome(&self, commit_id: &CommitId) -> Result<bool, StoreError> {
        self.wait().await;
        let outcome = self.faults.outcome(commit_id).await;
        self.wait().await;
        outcome
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        self.wait().await;
        self.faults.query(query).await
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        self.wait().await;
        self.faults.count(count).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        self.wait().await;
        let payloads = self.faults.payloads(keys).await;
        self.wait().await;
        payloads
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        self.wait().await;
        let events = self.faults.events(after, limit).await;
        self.wait().await;
        events
    }

    fn notifications(&self) -> Notifications {
        if self.deaf {
            return Notifications::new(broadcast::Sender::new(1).subscribe(), 0);
        }
        self.faults.notifications()
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        self.wait().await;
        self.faults.describe().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.faults.close().await
    }
}

struct SimTx {
    inner: Box<dyn Tx>,
    store: SimStore,
    /// The position of the log when it began.
    view: u64,
}

#[async_trait]
impl Tx for SimTx {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError> {
        self.store.wait().await;
        let loaded = self.inner.load(wanted).await;
        self.store.wait().await;
        self.store.pass(Point::Loaded).await;
        loaded
    }

    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let Self { inner, store, view } = *self;
        let writes = !changes.is_empty();
        store.wait().await;
        if writes {
            store.pass(Point::Decided).await;
        }
        let view = (view, changes.at);
        let committed = inner.commit(changes.clone()).await;
        // Nothing runs between a commit and this: the model sees every state.
        store.watch.see().committed(&store.memory, &changes, view, &store.worker);
        if matches!(committed, Err(StoreError::Conflict)) {
            store.note_race(&changes);
        }
        store.untold.store(writes && committed.is_ok(), Ordering::Relaxed);
        store.wait().await;
        if writes {
            store.pass(Point::Committed).await;
        }
        store.untold.store(false, Ordering::Relaxed);
        committed
    }
}
