//! The world of one batch: loaded records, its changes, and the rows still to load.
//!
//! A command reads through the world. If a record is not loaded, the command notes it and stops
//! with [`Halt::Parked`]; the batcher loads all noted records and decides the command again.
//! Changes of a parked or rejected command are undone; those of an accepted one are visible to
//! later commands.

mod change;
mod entry;
mod load;
mod scan;
mod undo_log;

pub use change::{ChangeSet, Update, Wake};
pub use load::{LoadRequest, Loaded, LogEntry, PageRow};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::Event;
use crate::name::{LaneName, Tenant};
use crate::payload::{Payload, PayloadKey};
use crate::record::{AnyRecord, StoredRecord};
use crate::rejection::Rejection;
use crate::row::{Index, Range, RowKey, Value};
use crate::task::{Lifecycle, Route};
use crate::time::Timestamp;

use entry::{Entry, RecordState};
use scan::Coverage;
use undo_log::UndoLog;

/// Why a command stopped before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// A record it needs is not loaded.
    Parked,
    Rejected(Rejection),
}

impl From<Rejection> for Halt {
    fn from(rejection: Rejection) -> Self {
        Halt::Rejected(rejection)
    }
}

/// Skips a quarantined record, where the command can continue without it.
pub(crate) fn unless_quarantined<T>(read: Result<T, Halt>) -> Result<Option<T>, Halt> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(Halt::Rejected(Rejection::Quarantined { .. })) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Guesses that one batch leaves for the next. They save a round trip if right and cost nothing if
/// wrong: correctness does not depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    routes: BTreeMap<(Tenant, LaneName), Vec<Route>>,
}

/// A wake, and the task it is for if that task is granted to one worker.
#[derive(Debug, PartialEq)]
struct PendingWake {
    wake: Wake,
    granted_task: Option<RowKey>,
}

#[derive(Debug, PartialEq)]
pub struct World {
    now: Timestamp,
    /// The clock of the store must be past this time after the commit of this batch.
    commit_time: Timestamp,
    /// A command with changes was accepted: its writes contain `now`.
    has_changes: bool,
    /// See [`World::is_late`].
    is_late: bool,
    entries: BTreeMap<RowKey, Entry>,
    positions: BTreeMap<(Index, Vec<Value>), RowKey>,
    coverage: BTreeMap<Range, Coverage>,
    log_head: Option<Vec<LogEntry>>,
    pending_loads: load::PendingLoads,
    picked: BTreeSet<RowKey>,
    /// See [`World::mark_stale_absence`].
    stale_absences: BTreeSet<RowKey>,
    undo_log: UndoLog,
    events: Vec<Event>,
    /// Payload writes, in order. An entry without a payload drops the key.
    payloads: Vec<(PayloadKey, Option<Payload>)>,
    wakes: Vec<PendingWake>,
    trim_through: Option<u64>,
    hints: Hints,
}

impl World {
    pub fn new(now: Timestamp, hints: Hints) -> Self {
        Self {
            now,
            commit_time: now,
            has_changes: false,
            is_late: false,
            entries: BTreeMap::new(),
            positions: BTreeMap::new(),
            coverage: BTreeMap::new(),
            log_head: None,
            pending_loads: load::PendingLoads::default(),
            picked: BTreeSet::new(),
            stale_absences: BTreeSet::new(),
            undo_log: UndoLog::default(),
            events: Vec::new(),
            payloads: Vec::new(),
            wakes: Vec::new(),
            trim_through: None,
            hints,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether the batch loaded a record that another batch wrote concurrently: a later version of
    /// a record loaded before, or any record written at or after `now` once a change was accepted.
    /// The batch must not be committed; its commands are decided again in a later batch.
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// The epoch that the first claim of a task created here counts from. It is higher than every
    /// epoch of an earlier task with the same id, so that fences are never reused.
    pub(crate) fn first_epoch(&self) -> u64 {
        u64::try_from(self.commit_time.micros()).unwrap_or(0)
    }

    /// Makes every task created from here on start above this epoch.
    pub(crate) fn raise_epoch_floor(&mut self, epoch: u64) {
        let epoch = Timestamp::from_micros(i64::try_from(epoch).unwrap_or(i64::MAX));
        self.commit_time = self.commit_time.max(epoch);
    }

    /// Reads a record. The commit checks its version, whether the command is accepted or rejected.
    pub(crate) fn get<R: StoredRecord>(&mut self, key: &RowKey) -> Result<Option<Arc<R>>, Halt> {
        let Some(entry) = self.entries.get(key) else {
            self.pending_loads.rows.insert(key.clone());
            return Err(Halt::Parked);
        };
        if !entry.read {
            self.undo_log.reads.push(key.clone());
        }
        match &entry.state {
            RecordState::Absent => Ok(None),
            RecordState::Present(any) => Ok(Some(R::from_any(any).clone())),
            RecordState::Unreadable => {
                Err(Rejection::Quarantined { table: key.table.spec().name }.into())
            }
        }
    }

    /// Notes that a record was loaded as absent, which another record contradicts: the load
    /// predates the insert of both.
    pub(crate) fn mark_stale_absence(&mut self, key: RowKey) {
        self.stale_absences.insert(key);
    }

    pub(crate) fn is_stale_absence(&self, key: &RowKey) -> bool {
        self.stale_absences.contains(key)
    }

    /// Notes a record that will be read, so that several are loaded together. Returns whether it
    /// was not loaded yet.
    pub(crate) fn prefetch(&mut self, key: RowKey) -> bool {
        let missing = !self.entries.contains_key(&key);
        if missing {
            self.pending_loads.rows.insert(key);
        }
        missing
    }

    /// Assumes the key is absent without loading it. Only for keys allocated from a counter in a
    /// record that this command has read. If the key exists after all, the INSERT conflicts.
    pub(crate) fn assume_absent(&mut self, key: RowKey) {
        self.entries.entry(key).or_insert(Entry {
            loaded_version: None,
            unknown_fields: None,
            state: RecordState::Absent,
            read: false,
            changed: false,
        });
    }

    /// Replaces the record under its key. The key must have been read.
    pub(crate) fn put<R: StoredRecord>(&mut self, record: impl Into<Arc<R>>) {
        let record = record.into();
        let key = R::row_key(record.key());
        self.replace(key, RecordState::Present(R::into_any(record)));
    }

    pub(crate) fn remove(&mut self, key: &RowKey) {
        self.replace(key.clone(), RecordState::Absent);
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.events.push(event);
    }

    /// The position of the next log event, for [`World::emit_at`].
    pub(crate) fn log_position(&self) -> usize {
        self.events.len()
    }

    /// Inserts a log event before those that the same command has emitted since `position`.
    pub(crate) fn emit_at(&mut self, position: usize, event: Event) {
        self.events.insert(position, event);
    }

    pub(crate) fn attach(&mut self, key: PayloadKey, payload: Payload) {
        self.payloads.push((key, Some(payload)));
    }

    pub(crate) fn drop_payloads(&mut self, keys: impl IntoIterator<Item = PayloadKey>) {
        self.payloads.extend(keys.into_iter().map(|key| (key, None)));
    }

    /// Wakes waiting claims that may find a task in this lane.
    pub(crate) fn wake(&mut self, wake: Wake) {
        self.wakes.push(PendingWake { wake, granted_task: None });
    }

    /// Wakes the worker that a task is granted to, if the grant outlives the batch.
    pub(crate) fn wake_granted(&mut self, wake: Wake, granted_task: RowKey) {
        self.wakes.push(PendingWake { wake, granted_task: Some(granted_task) });
    }

    /// The number of wakes so far.
    pub fn wakes_seen(&self) -> usize {
        self.wakes.len()
    }

    /// The wakes since `seen`. Claims that wait for them can be decided in the same batch.
    pub fn wakes_since(&self, seen: usize) -> Vec<Wake> {
        let due = self.wakes[seen..].iter().filter(|pending| self.is_wake_due(pending));
        due.map(|pending| pending.wake.clone()).collect()
    }

    /// Whether the wake is still due: the task is not granted to one worker, or still reserved.
    fn is_wake_due(&self, pending: &PendingWake) -> bool {
        let Some(key) = &pending.granted_task else { return true };
        let state = self.entries.get(key).map(|entry| &entry.state);
        matches!(state, Some(RecordState::Present(AnyRecord::Task(task)))
            if matches!(task.lifecycle, Lifecycle::Granted { .. }))
    }

    pub(crate) fn trim_log(&mut self, through: u64) {
        self.trim_through = self.trim_through.max(Some(through));
    }

    /// The oldest log events that this batch has not trimmed, at most `limit`.
    pub(crate) fn log_head(&mut self, limit: usize) -> Result<Vec<LogEntry>, Halt> {
        let Some(head) = &self.log_head else {
            self.pending_loads.log_head = self.pending_loads.log_head.max(limit);
            return Err(Halt::Parked);
        };
        let left = head.iter().filter(|entry| Some(entry.seq) > self.trim_through);
        Ok(left.take(limit).copied().collect())
    }

    pub(crate) fn hinted_routes(&self, tenant: &Tenant, lane: &LaneName) -> Vec<Route> {
        self.hints.routes.get(&(tenant.clone(), lane.clone())).cloned().unwrap_or_default()
    }

    pub(crate) fn hint_routes(&mut self, tenant: &Tenant, lane: &LaneName, routes: Vec<Route>) {
        const MAX_HINTED_LANES: usize = 1_024;
        if self.hints.routes.len() >= MAX_HINTED_LANES {
            self.hints.routes.clear();
        }
        self.hints.routes.insert((tenant.clone(), lane.clone()), routes);
    }
}
