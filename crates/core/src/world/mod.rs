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

use entry::{Entry, Slot};
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
struct Call {
    wake: Wake,
    kept: Option<RowKey>,
}

#[derive(Debug, PartialEq)]
pub struct World {
    now: Timestamp,
    /// The clock of the store must be past this time after the commit of this batch.
    latest: Timestamp,
    /// A command with changes was accepted: its writes contain `now`.
    has_changes: bool,
    /// See [`World::is_late`].
    is_late: bool,
    entries: BTreeMap<RowKey, Entry>,
    positions: BTreeMap<(Index, Vec<Value>), RowKey>,
    reaches: BTreeMap<Range, Coverage>,
    log_head: Option<Vec<LogEntry>>,
    wanted: load::Wants,
    picked: BTreeSet<RowKey>,
    /// See [`World::note_missed`].
    missed: BTreeSet<RowKey>,
    draft: UndoLog,
    events: Vec<Event>,
    /// In order. An entry without a payload drops the key.
    payloads: Vec<(PayloadKey, Option<Payload>)>,
    wakes: Vec<Call>,
    trim_through: Option<u64>,
    hints: Hints,
}

impl World {
    pub fn new(now: Timestamp, hints: Hints) -> Self {
        Self {
            now,
            latest: now,
            has_changes: false,
            is_late: false,
            entries: BTreeMap::new(),
            positions: BTreeMap::new(),
            reaches: BTreeMap::new(),
            log_head: None,
            wanted: load::Wants::default(),
            picked: BTreeSet::new(),
            missed: BTreeSet::new(),
            draft: UndoLog::default(),
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
        u64::try_from(self.latest.micros()).unwrap_or(0)
    }

    /// Makes every task created from here on start above this epoch.
    pub(crate) fn raise_epoch_floor(&mut self, epoch: u64) {
        let epoch = Timestamp::from_micros(i64::try_from(epoch).unwrap_or(i64::MAX));
        self.latest = self.latest.max(epoch);
    }

    /// Reads a record. The commit checks its version, whether the command is accepted or rejected.
    pub(crate) fn get<R: StoredRecord>(&mut self, key: &RowKey) -> Result<Option<Arc<R>>, Halt> {
        let Some(entry) = self.entries.get(key) else {
            self.wanted.rows.insert(key.clone());
            return Err(Halt::Parked);
        };
        if !entry.read {
            self.draft.touched.push(key.clone());
        }
        match &entry.slot {
            Slot::Absent => Ok(None),
            Slot::Here(any) => Ok(Some(R::from_any(any).clone())),
            Slot::Unreadable => Err(Rejection::Quarantined { table: key.table.spec().name }.into()),
        }
    }

    /// Notes that a record was loaded as absent, which another record contradicts: the load
    /// predates the insert of both.
    pub(crate) fn note_missed(&mut self, key: RowKey) {
        self.missed.insert(key);
    }

    pub(crate) fn is_missed(&self, key: &RowKey) -> bool {
        self.missed.contains(key)
    }

    /// Notes a record that will be read, so that several are loaded together. Returns whether it
    /// was not loaded yet.
    pub(crate) fn prefetch(&mut self, key: RowKey) -> bool {
        let missing = !self.entries.contains_key(&key);
        if missing {
            self.wanted.rows.insert(key);
        }
        missing
    }

    /// Assumes the key is absent without loading it. Only for keys allocated from a counter in a
    /// record that this command has read. If the key exists after all, the INSERT conflicts.
    pub(crate) fn assume_absent(&mut self, key: RowKey) {
        self.entries.entry(key).or_insert(Entry {
            base: None,
            extra: None,
            slot: Slot::Absent,
            read: false,
            changed: false,
        });
    }

    /// Replaces the record under its key. The key must have been read.
    pub(crate) fn put<R: StoredRecord>(&mut self, record: impl Into<Arc<R>>) {
        let record = record.into();
        let key = R::row_key(record.key());
        self.replace(key, Slot::Here(R::into_any(record)));
    }

    pub(crate) fn remove(&mut self, key: &RowKey) {
        self.replace(key.clone(), Slot::Absent);
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
        self.wakes.push(Call { wake, kept: None });
    }

    /// Wakes the worker that a task is granted to, if the grant outlives the batch.
    pub(crate) fn wake_keeper(&mut self, wake: Wake, kept: RowKey) {
        self.wakes.push(Call { wake, kept: Some(kept) });
    }

    /// The number of wakes so far.
    pub fn wakes_seen(&self) -> usize {
        self.wakes.len()
    }

    /// The wakes since `seen`. Claims that wait for them can be decided in the same batch.
    pub fn wakes_since(&self, seen: usize) -> Vec<Wake> {
        let calls = self.wakes[seen..].iter().filter(|call| self.holds(call));
        calls.map(|call| call.wake.clone()).collect()
    }

    /// Whether the wake is still due: the task is not granted to one worker, or still reserved.
    fn holds(&self, call: &Call) -> bool {
        let Some(key) = &call.kept else { return true };
        let slot = self.entries.get(key).map(|entry| &entry.slot);
        matches!(slot, Some(Slot::Here(AnyRecord::Task(task)))
            if matches!(task.lifecycle, Lifecycle::Granted { .. }))
    }

    pub(crate) fn trim_log(&mut self, through: u64) {
        self.trim_through = self.trim_through.max(Some(through));
    }

    /// The oldest log events that this batch has not trimmed, at most `limit`.
    pub(crate) fn log_head(&mut self, limit: usize) -> Result<Vec<LogEntry>, Halt> {
        let Some(head) = &self.log_head else {
            self.wanted.log_head = self.wanted.log_head.max(limit);
            return Err(Halt::Parked);
        };
        let left = head.iter().filter(|entry| Some(entry.seq) > self.trim_through);
        Ok(left.take(limit).copied().collect())
    }

    pub(crate) fn guess_routes(&self, tenant: &Tenant, lane: &LaneName) -> Vec<Route> {
        self.hints.routes.get(&(tenant.clone(), lane.clone())).cloned().unwrap_or_default()
    }

    pub(crate) fn remember_routes(&mut self, tenant: &Tenant, lane: &LaneName, routes: Vec<Route>) {
        const MOST_LANES: usize = 1_024;
        if self.hints.routes.len() >= MOST_LANES {
            self.hints.routes.clear();
        }
        self.hints.routes.insert((tenant.clone(), lane.clone()), routes);
    }
}
