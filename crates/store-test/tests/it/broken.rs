//! The suites catch each kind of broken store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::sync::broadcast;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, StoredRow, Timestamp, Update,
    Value,
};
use windlass_store::{
    Clock, CommitId, Count, ManualClock, Notifications, Query, Store, StoreDescription, StoreError,
    Tx,
};
use windlass_store_test::{Factory, MemoryFactory, conformance, differential};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    IgnoresReads,
    Upserts,
    IgnoresVersionsOfDeletes,
    KeepsHalfOfAConflict,
    DropsEvents,
    DropsPayloads,
    KeepsDroppedPayloads,
    NeverTrims,
    RenumbersEvents,
    ReversesPages,
    IgnoresUntil,
    IgnoresAfter,
    IgnoresLimits,
    ForgetsTheLogHead,
    SortsPayloads,
    IgnoresFilters,
    IgnoresQueryAfter,
    CountsAbsentColumns,
    ShortensBodies,
    TimeFalls,
    CountsEveryCommit,
    HearsItself,
    HearsNothing,
}

/// A kind of broken store, a case that catches it, and whether the differential run does too.
const MODES: &[(Mode, &str, bool)] = &[
    (Mode::IgnoresReads, "a_read_checks_its_version", false),
    (Mode::Upserts, "an_insert_never_overwrites", false),
    (Mode::IgnoresVersionsOfDeletes, "a_delete_checks_its_version", false),
    (Mode::KeepsHalfOfAConflict, "a_change_set_is_all_or_nothing", false),
    (Mode::DropsEvents, "events_come_in_the_order_of_their_commits", true),
    (Mode::DropsPayloads, "payloads_come_in_the_order_of_their_keys", true),
    (Mode::KeepsDroppedPayloads, "dropped_payloads_are_gone", true),
    (Mode::NeverTrims, "a_trim_forgets_the_oldest", true),
    (Mode::RenumbersEvents, "numbers_are_never_used_again", true),
    (Mode::ReversesPages, "a_scan_follows_its_index", true),
    (Mode::IgnoresUntil, "scans_keep_to_their_ranges", true),
    (Mode::IgnoresAfter, "pages_join_without_a_seam", false),
    (Mode::IgnoresLimits, "scans_keep_to_their_ranges", true),
    (Mode::ForgetsTheLogHead, "the_head_of_the_log_is_loaded", true),
    (Mode::SortsPayloads, "payloads_come_in_the_order_of_their_keys", false),
    (Mode::IgnoresFilters, "a_query_keeps_to_its_filter", false),
    (Mode::IgnoresQueryAfter, "a_query_follows_the_keys", false),
    (Mode::CountsAbsentColumns, "counts_tell_rows_apart", false),
    (Mode::ShortensBodies, "a_long_body_survives", false),
    (Mode::TimeFalls, "time_never_falls", true),
    (Mode::CountsEveryCommit, "reads_alone_write_nothing", false),
    (Mode::HearsItself, "a_notice_reaches_the_other_handle", false),
    (Mode::HearsNothing, "a_notice_reaches_the_other_handle", false),
];

#[tokio::test]
async fn conformance_catches_broken_stores() {
    for (mode, expected, _) in MODES {
        let factory = BrokenFactory::new(*mode);
        let case = conformance::CASES.iter().find(|case| case.name == *expected);
        let verdict = case.expect("the case exists").run(&factory).await;
        assert!(verdict.is_err(), "{expected} does not catch a store that {mode:?}");
    }
}

#[tokio::test]
async fn the_differential_run_catches_broken_stores() {
    for (mode, _, _) in MODES.iter().filter(|(_, _, is_caught)| *is_caught) {
        let factory = BrokenFactory::new(*mode);
        let run = differential::run(0..40, &[("broken", &factory)]).await;
        let divergence = run.expect_err("a broken store differs from the reference tables");
        assert_eq!(divergence.store, "broken", "{mode:?}: {divergence}");
        let line = divergence.to_string();
        assert!(line.starts_with("WINDLASS_SEED=") && !line.contains('\n'), "{line}");
    }
}

#[test]
fn names_of_cases_are_distinct() {
    let names: BTreeSet<&str> = conformance::CASES.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), conformance::CASES.len());
}

struct BrokenFactory {
    mode: Mode,
    sound: MemoryFactory,
}

impl BrokenFactory {
    fn new(mode: Mode) -> Self {
        Self { mode, sound: MemoryFactory::default() }
    }
}

#[async_trait]
impl Factory for BrokenFactory {
    async fn open(&self, place: &str, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let inner = self.sound.open(place, clock.clone()).await;
        let bystander = self.sound.open(place, clock.clone()).await;
        let mode = self.mode;
        Arc::new(Broken { mode, inner, bystander, clock, commits: Arc::default() })
    }
}

#[derive(Debug)]
struct Broken {
    mode: Mode,
    inner: Arc<dyn Store>,
    /// Another handle, which gets the notifications of the first one.
    bystander: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    commits: Arc<AtomicU64>,
}

#[async_trait]
impl Store for Broken {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        let inner = self.inner.begin().await?;
        let now = if self.mode == Mode::TimeFalls { self.clock.now() } else { inner.now() };
        let (store, commits) = (self.bystander.clone(), self.commits.clone());
        Ok(Box::new(BrokenTx { mode: self.mode, inner, now, store, commits }))
    }

    async fn outcome(&self, commit_id: &CommitId) -> Result<bool, StoreError> {
        self.inner.outcome(commit_id).await
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        let mut query = query.clone();
        match self.mode {
            Mode::IgnoresFilters => query.filter.clear(),
            Mode::IgnoresQueryAfter => query.after = None,
            _ => {}
        }
        let mut rows = self.inner.query(&query).await?;
        if self.mode == Mode::ShortensBodies {
            let short = |row: &mut StoredRow| row.body = row.body.chars().take(60_000).collect();
            rows.iter_mut().for_each(short);
        }
        Ok(rows)
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        let mut count = count.clone();
        if self.mode == Mode::CountsAbsentColumns {
            count.present = None;
        }
        self.inner.count(&count).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        let mut keys = keys.to_vec();
        if self.mode == Mode::SortsPayloads {
            keys.sort();
        }
        self.inner.payloads(&keys).await
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        if self.mode != Mode::RenumbersEvents {
            return self.inner.events(after, limit).await;
        }
        let all = self.inner.events(0, usize::MAX).await?;
        let renumbered = (1..).zip(all).map(|(seq, event)| LogEvent { seq, ..event });
        Ok(renumbered.filter(|event| event.seq > after).take(limit).collect())
    }

    fn notifications(&self) -> Notifications {
        match self.mode {
            Mode::HearsItself => self.bystander.notifications(),
            Mode::HearsNothing => Notifications::new(broadcast::Sender::new(1).subscribe(), 0),
            _ => self.inner.notifications(),
        }
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        let mut description = self.inner.describe().await?;
        if self.mode == Mode::CountsEveryCommit {
            description.commits = self.commits.load(Ordering::Relaxed);
        }
        Ok(description)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

struct BrokenTx {
    mode: Mode,
    inner: Box<dyn Tx>,
    now: Timestamp,
    store: Arc<dyn Store>,
    commits: Arc<AtomicU64>,
}

impl BrokenTx {
    /// The change set as modified by this fault.
    async fn bend(&mut self, changes: &ChangeSet) -> Result<ChangeSet, StoreError> {
        let mut changes = changes.clone();
        match self.mode {
            Mode::IgnoresReads => changes.reads.clear(),
            Mode::DropsEvents => changes.events.clear(),
            Mode::DropsPayloads => changes.payloads.clear(),
            Mode::KeepsDroppedPayloads => changes.dropped_payloads.clear(),
            Mode::NeverTrims => changes.trim_through = None,
            Mode::Upserts => {
                for row in std::mem::take(&mut changes.inserts) {
                    let wanted =
                        LoadRequest { rows: vec![row.key.clone()], ..LoadRequest::default() };
                    let known = self.inner.load(Arc::new(wanted)).await?.rows.pop();
                    match known.map(|known| known.version) {
                        Some(expected) => changes.updates.push(Update { row, expected }),
                        None => changes.inserts.push(row),
                    }
                }
            }
            Mode::IgnoresVersionsOfDeletes => {
                let rows = changes.deletes.iter().map(|(key, _)| key.clone()).collect();
                let known = self
                    .inner
                    .load(Arc::new(LoadRequest { rows, ..LoadRequest::default() }))
                    .await?;
                changes.deletes = known.rows.into_iter().map(|r| (r.key, r.version)).collect();
            }
            _ => {}
        }
        Ok(changes)
    }
}

#[async_trait]
impl Tx for BrokenTx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError> {
        let mut wanted = LoadRequest::clone(&wanted);
        for scan in &mut wanted.scans {
            match self.mode {
                Mode::IgnoresUntil => scan.range.until = None,
                Mode::IgnoresAfter => scan.after = None,
                Mode::IgnoresLimits => scan.limit += 1,
                _ => {}
            }
        }
        let mut loaded = self.inner.load(Arc::new(wanted)).await?;
        match self.mode {
            Mode::ReversesPages => loaded.pages.iter_mut().for_each(|page| page.reverse()),
            Mode::ForgetsTheLogHead => loaded.log_head.clear(),
            _ => {}
        }
        Ok(loaded)
    }

    async fn commit(mut self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let bent = self.bend(&changes).await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        let committed = self.inner.commit(Arc::new(bent)).await;
        if committed.is_err() && self.mode == Mode::KeepsHalfOfAConflict {
            let events = changes.events.clone();
            let half = ChangeSet { events, ..ChangeSet::default() };
            self.store.begin().await?.commit(Arc::new(half)).await?;
        }
        committed
    }
}
