//! The world of one batch: what was loaded, what the batch made of it, and what is still missing.
//!
//! A transition reads through the world. What is not loaded is noted and the transition leaves
//! with [`Halt::Parked`]; the batcher loads everything that was noted and decides again. What a
//! parked or rejected transition had changed is undone; what an accepted one changed is seen by
//! those after it.

mod change;
mod draft;
mod entry;
mod load;
mod scan;

pub use change::{ChangeSet, Update, Wake};
pub use load::{Loaded, LogEntry, PageRow, Wanted};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::Event;
use crate::name::{LaneName, Tenant};
use crate::payload::{Payload, PayloadKey};
use crate::record::{AnyRecord, Filed};
use crate::rejection::Rejection;
use crate::row::{Index, Range, RowKey, Value};
use crate::task::{Lifecycle, Route};
use crate::time::Timestamp;

use draft::Draft;
use entry::{Entry, Slot};
use scan::Reach;

/// Why a transition stopped before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Something it needs is not loaded.
    Parked,
    Rejected(Rejection),
}

impl From<Rejection> for Halt {
    fn from(rejection: Rejection) -> Self {
        Halt::Rejected(rejection)
    }
}

/// Passes over a record that cannot be read, where there are others to go on with.
pub(crate) fn unless_quarantined<T>(read: Result<T, Halt>) -> Result<Option<T>, Halt> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(Halt::Rejected(Rejection::Quarantined { .. })) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Guesses that one batch leaves for the next. They save a round when right and cost nothing
/// when wrong: no rule depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    routes: BTreeMap<(Tenant, LaneName), Vec<Route>>,
}

/// A wake, and the task it is about if only one worker may have that.
#[derive(Debug, PartialEq)]
struct Call {
    wake: Wake,
    kept: Option<RowKey>,
}

#[derive(Debug, PartialEq)]
pub struct World {
    now: Timestamp,
    /// What the clock must be past once this batch is committed.
    latest: Timestamp,
    /// A command was accepted that changes something: `now` is in what it wrote.
    has_changes: bool,
    /// See [`World::is_late`].
    is_late: bool,
    entries: BTreeMap<RowKey, Entry>,
    positions: BTreeMap<(Index, Vec<Value>), RowKey>,
    reaches: BTreeMap<Range, Reach>,
    log_head: Option<Vec<LogEntry>>,
    wanted: load::Wants,
    held: BTreeSet<RowKey>,
    /// See [`World::note_missed`].
    missed: BTreeSet<RowKey>,
    draft: Draft,
    events: Vec<Event>,
    /// In the order they were attached or, without a payload, dropped.
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
            held: BTreeSet::new(),
            missed: BTreeSet::new(),
            draft: Draft::default(),
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

    /// Whether the batch loaded a record that another one wrote while it was being decided: a later
    /// version of what it had loaded before, or anything from its own time or later when something
    /// was already decided at that time. The batch must not be committed: a batch that begins after
    /// this decides its commands again.
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// The epoch that the first claim of a task created here counts on from. It is higher than any
    /// that an earlier task of the same id was claimed under, so that a fence never comes twice.
    pub(crate) fn first_epoch(&self) -> u64 {
        u64::try_from(self.latest.micros()).unwrap_or(0)
    }

    /// Makes sure that every task created from here on starts above this epoch.
    pub(crate) fn outlive(&mut self, epoch: u64) {
        let epoch = Timestamp::from_micros(i64::try_from(epoch).unwrap_or(i64::MAX));
        self.latest = self.latest.max(epoch);
    }

    /// Reads a record. It is checked at the commit, whatever comes of the command.
    pub(crate) fn get<R: Filed>(&mut self, key: &RowKey) -> Result<Option<Arc<R>>, Halt> {
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

    /// Notes a record that will be read, so that several can be asked for at once. Says whether
    /// it was still missing.
    pub(crate) fn prefetch(&mut self, key: RowKey) -> bool {
        let missing = !self.entries.contains_key(&key);
        if missing {
            self.wanted.rows.insert(key);
        }
        missing
    }

    /// Takes a key for one that was never used, on the word of the record that gives such keys out,
    /// which this command has read. Whoever wrote it all the same makes the commit a conflict.
    pub(crate) fn fresh(&mut self, key: RowKey) {
        self.entries.entry(key).or_insert(Entry {
            base: None,
            extra: None,
            slot: Slot::Absent,
            read: false,
            changed: false,
        });
    }

    /// Puts a record in place of what its key held. The key must have been read.
    pub(crate) fn put<R: Filed>(&mut self, record: impl Into<Arc<R>>) {
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

    /// Where the next entry of the log comes, for [`World::emit_at`].
    pub(crate) fn log_position(&self) -> usize {
        self.events.len()
    }

    /// Puts an entry before those that the same command has emitted since `position`.
    pub(crate) fn emit_at(&mut self, position: usize, event: Event) {
        self.events.insert(position, event);
    }

    pub(crate) fn attach(&mut self, key: PayloadKey, payload: Payload) {
        self.payloads.push((key, Some(payload)));
    }

    pub(crate) fn drop_payloads(&mut self, keys: impl IntoIterator<Item = PayloadKey>) {
        self.payloads.extend(keys.into_iter().map(|key| (key, None)));
    }

    /// Says that a claim may find something that it did not find before.
    pub(crate) fn wake(&mut self, wake: Wake) {
        self.wakes.push(Call { wake, kept: None });
    }

    /// Says that one worker may find a task that is kept for it, for as long as it is.
    pub(crate) fn wake_keeper(&mut self, wake: Wake, kept: RowKey) {
        self.wakes.push(Call { wake, kept: Some(kept) });
    }

    /// How much was woken so far.
    pub fn wakes_seen(&self) -> usize {
        self.wakes.len()
    }

    /// What was woken since then; claims that wait for it can be decided in the same batch.
    pub fn wakes_since(&self, seen: usize) -> Vec<Wake> {
        let calls = self.wakes[seen..].iter().filter(|call| self.holds(call));
        calls.map(|call| call.wake.clone()).collect()
    }

    /// Whether what is called for is still there.
    fn holds(&self, call: &Call) -> bool {
        let Some(key) = &call.kept else { return true };
        let slot = self.entries.get(key).map(|entry| &entry.slot);
        matches!(slot, Some(Slot::Here(AnyRecord::Task(task)))
            if matches!(task.lifecycle, Lifecycle::Reserved { .. }))
    }

    pub(crate) fn trim_log(&mut self, through: u64) {
        self.trim_through = self.trim_through.max(Some(through));
    }

    /// The oldest entries of the log that this batch has left there, at most `limit`.
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
