use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::sync::broadcast;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, ReferenceTables, Row, StoredRow,
    Timestamp, Value,
};

use crate::clock::{Clock, MonotonicTime, SystemClock};
use crate::contract::{Count, Query, Store, StoreDescription, Tx};
use crate::error::{CommitId, StoreError};
use crate::notification::{Notification, Notifications};

/// An in-memory store: not durable, but otherwise like any other. Several engines can share one
/// through [`MemoryStore::another`], and their commits can conflict.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    handle: u64,
    commits: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    incarnation: String,
    handles: AtomicU64,
    notifications: broadcast::Sender<(u64, Notification)>,
}

#[derive(Debug, Default)]
struct State {
    tables: ReferenceTables,
    last_commit_at: Timestamp,
    pace: MonotonicTime,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            incarnation: uuid::Uuid::now_v7().to_string(),
            handles: AtomicU64::new(1),
            notifications: broadcast::Sender::new(1_024),
        };
        Self { shared: Arc::new(shared), clock, handle: 0, commits: Arc::default() }
    }

    /// Another handle on the same records, for another engine.
    pub fn another(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            clock: self.clock.clone(),
            handle: self.shared.handles.fetch_add(1, Ordering::Relaxed),
            commits: Arc::default(),
        }
    }

    /// A copy of all records.
    pub fn snapshot(&self) -> ReferenceTables {
        self.shared.lock().tables.clone()
    }

    /// Stores a row unchecked, as another version might have written it.
    pub fn plant(&self, row: Row) {
        self.shared.lock().tables.plant(row);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding the records")
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        let now = {
            let mut state = self.shared.lock();
            let last = state.last_commit_at;
            state.pace.now(&*self.clock, last)
        };
        let (shared, handle) = (self.shared.clone(), self.handle);
        Ok(Box::new(MemoryTx { shared, now, handle, commits: self.commits.clone() }))
    }

    async fn outcome(&self, _: &CommitId) -> Result<bool, StoreError> {
        unreachable!("an in-memory commit always returns its outcome, so no commit id exists")
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        let state = self.shared.lock();
        let rows = state.tables.rows().filter(|row| matches(row, query));
        Ok(rows.take(query.limit).map(stored).collect())
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        let state = self.shared.lock();
        let spec = count.table.spec();
        let mut counts = BTreeMap::new();
        for row in state.tables.rows().filter(|row| counts_in(row, count)) {
            let kind = count.by.iter().map(|column| spec.value(row, column).clone());
            *counts.entry(kind.collect()).or_default() += 1;
        }
        Ok(counts.into_iter().collect())
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        let state = self.shared.lock();
        Ok(keys.iter().map(|key| state.tables.payload(key).cloned()).collect())
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        Ok(self.shared.lock().tables.events_after(after).take(limit).collect())
    }

    fn notifications(&self) -> Notifications {
        Notifications::new(self.shared.notifications.subscribe(), self.handle)
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        Ok(StoreDescription {
            backend: "memory",
            format: 1,
            durability: "none: lost when the process ends".into(),
            incarnation: self.shared.incarnation.clone(),
            last_seq: self.shared.lock().tables.last_seq(),
            commits: self.commits.load(Ordering::Relaxed),
            round_trips: None,
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

struct MemoryTx {
    shared: Arc<Shared>,
    now: Timestamp,
    handle: u64,
    commits: Arc<AtomicU64>,
}

#[async_trait]
impl Tx for MemoryTx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError> {
        let state = self.shared.lock();
        Ok(Loaded { as_of: state.last_commit_at, ..state.tables.load(&wanted) })
    }

    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let mut state = self.shared.lock();
        // A key that was inserted and deleted since this batch began looks as if it had never
        // existed. So inserts conflict with any commit since then.
        if !changes.inserts.is_empty() && self.now <= state.last_commit_at {
            return Err(StoreError::Conflict);
        }
        state.tables.commit(&changes).map_err(|_| StoreError::Conflict)?;
        if changes.is_empty() {
            return Ok(());
        }
        state.last_commit_at = state.last_commit_at.max(self.now).max(changes.commit_time);
        drop(state);
        self.commits.fetch_add(1, Ordering::Relaxed);
        // Without a receiver no other engine shares the store.
        let _ = self.shared.notifications.send((self.handle, Notification::of(&changes)));
        Ok(())
    }
}

fn matches(row: &Row, query: &Query) -> bool {
    let spec = query.table.spec();
    row.key.table == query.table
        && row.key.values.starts_with(&query.prefix)
        && query.after.as_ref().is_none_or(|after| row.key.values > *after)
        && query.filter.iter().all(|(column, value)| spec.value(row, column) == value)
}

fn counts_in(row: &Row, count: &Count) -> bool {
    let spec = count.table.spec();
    row.key.table == count.table
        && row.key.values.starts_with(&count.prefix)
        && count.present.is_none_or(|column| *spec.value(row, column) != Value::Null)
}

fn stored(row: &Row) -> StoredRow {
    let Row { key, version, schema, body, .. } = row.clone();
    StoredRow { key, version, schema, body }
}
