//! Scan hints for MVCC stores. A long-running transaction keeps VACUUM from removing dead index
//! entries at the head of a queue. Scans that start at the last known live position do not re-read
//! them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use windlass_core::{ChangeSet, Index, LoadRequest, Loaded, PageRow, Scan, Value};

/// How often a queue is scanned from its head, because hints may be incomplete.
const LOOK_AT_ALL: Duration = Duration::from_secs(5);
/// Slow full scans are less frequent: they take at most one part in this many of the time.
const PART_OF_TIME: u32 = 20;
/// How many updates of a queue are remembered. If more arrive during a scan, its result is
/// discarded.
const MOST_RECENT: usize = 64;
/// Beyond this number of queues all hints are dropped.
const MOST: usize = 10_000;

/// An index, and the values of the columns that identify a queue in it.
type QueueKey = (Index, Vec<Value>);

/// For each queue that a batch touched, the lowest position that it read or wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LowWatermarks(BTreeMap<QueueKey, Vec<Value>>);

/// Known head positions of queues. A hint may be wrong until the next full scan, a few seconds
/// later.
#[derive(Debug, Default)]
pub struct ScanHints(Mutex<BTreeMap<QueueKey, QueueHint>>);

#[derive(Debug)]
struct QueueHint {
    start: Option<Vec<Value>>,
    /// When the next full scan is due.
    good_until: Option<Instant>,
    /// Number of updates received for this queue.
    updates: u64,
    /// The latest updates.
    recent: VecDeque<Vec<Value>>,
}

/// The state at the start of a scan, to merge its result with the updates that arrive meanwhile.
#[derive(Debug)]
pub struct HintProbe {
    /// None for a scan of a later page, or of an index without queues.
    queue: Option<QueueKey>,
    /// Where to start; none for the head.
    pub start: Option<Vec<Value>>,
    updates: u64,
    began_at: Instant,
}

/// The queue of a position, if the index consists of queues.
fn queue(index: Index, position: &[Value]) -> Option<QueueKey> {
    Some((index, position.get(..index.queue_columns()?)?.to_vec()))
}

impl LowWatermarks {
    pub fn note(&mut self, index: Index, position: Vec<Value>) {
        let Some(queue) = queue(index, &position) else { return };
        let lowest = self.0.entry(queue).or_insert_with(|| position.clone());
        *lowest = position.min(std::mem::take(lowest));
    }

    /// Notes the first positions of these pages.
    pub fn note_pages(&mut self, wanted: &LoadRequest, loaded: &Loaded) {
        for (scan, page) in wanted.scans.iter().zip(&loaded.pages) {
            if let Some(first) = page.first() {
                self.note(scan.range.index, first.position.clone());
            }
        }
    }

    /// Notes every row that is written to a queue.
    pub fn note_changes(&mut self, changes: &ChangeSet) {
        for row in changes.inserts.iter().chain(changes.updates.iter().map(|update| &update.row)) {
            for index in row.key.table.spec().indexes.iter().map(|spec| spec.index) {
                let position = index.queue_columns().and_then(|_| index.position(row));
                position.into_iter().for_each(|position| self.note(index, position));
            }
        }
    }

    /// Encodes the positions for [`LowWatermarks::decode`].
    pub fn encode(&self) -> String {
        let positions: Vec<_> = self.0.iter().map(|((index, _), at)| (index, at)).collect();
        serde_json::to_string(&positions).expect("texts and numbers serialize")
    }

    pub fn decode(text: &str) -> Option<Self> {
        let positions: Vec<(Index, Vec<Value>)> = serde_json::from_str(text).ok()?;
        let mut lowest = Self::default();
        positions.into_iter().for_each(|(index, at)| lowest.note(index, at));
        Some(lowest)
    }
}

impl ScanHints {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueKey, QueueHint>> {
        self.0.lock().expect("no code panics while holding the hints")
    }

    /// The start position for a scan.
    pub fn probe(&self, scan: &Scan) -> HintProbe {
        let began_at = Instant::now();
        let queue = queue(scan.range.index, &scan.range.prefix).filter(|_| scan.after.is_none());
        let Some(queue) = queue else {
            return HintProbe { queue, start: None, updates: 0, began_at };
        };
        let mut all = self.lock();
        if all.len() > MOST {
            all.clear();
        }
        let fresh =
            QueueHint { start: None, good_until: None, updates: 0, recent: VecDeque::new() };
        let hint = all.entry(queue.clone()).or_insert(fresh);
        let recent = hint.good_until.is_some_and(|until| began_at < until);
        let start = hint.start.clone().filter(|_| recent);
        HintProbe { start, updates: hint.updates, queue: Some(queue), began_at }
    }

    /// Updates the hint from the result of a scan.
    pub fn learn(&self, probe: HintProbe, page: &[PageRow]) {
        let mut all = self.lock();
        let Some(hint) = probe.queue.and_then(|queue| all.get_mut(&queue)) else { return };
        // Fails if the hints were dropped meanwhile.
        let missed =
            hint.updates.checked_sub(probe.updates).and_then(|missed| usize::try_from(missed).ok());
        let Some(missed) = missed.filter(|missed| *missed <= hint.recent.len()) else { return };
        if probe.start.is_none() {
            let took = probe.began_at.elapsed();
            hint.good_until = Some(probe.began_at + LOOK_AT_ALL.max(PART_OF_TIME * took));
        }
        if let Some(first) = page.first() {
            let updates = hint.recent.iter().rev().take(missed);
            hint.start = updates.chain([&first.position]).min().cloned();
        }
    }

    /// Lowers hints to positions that another batch wrote or released.
    pub fn lower(&self, lowest: &LowWatermarks) {
        let mut all = self.lock();
        for (queue, position) in &lowest.0 {
            if let Some(hint) = all.get_mut(queue) {
                hint.updates += 1;
                hint.recent.push_back(position.clone());
                if hint.recent.len() > MOST_RECENT {
                    hint.recent.pop_front();
                }
                hint.start = hint.start.take().map(|start| start.min(position.clone()));
            }
        }
    }

    /// Drops all hints: any position may have changed.
    pub fn forget(&self) {
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lane: &str, ready_at: i64) -> Vec<Value> {
        let id = Value::from("id");
        vec!["t".into(), lane.into(), "".into(), 0.into(), ready_at.into(), id]
    }

    fn scan(lane: &str) -> Scan {
        let prefix = at(lane, 0)[..3].to_vec();
        let range = windlass_core::Range { index: Index::TaskReady, prefix, until: None };
        Scan { range, after: None, limit: 10 }
    }

    fn page(lane: &str, ready_at: i64) -> Vec<PageRow> {
        let (version, schema) = (windlass_core::Version(1), 1);
        vec![PageRow { position: at(lane, ready_at), version, schema, body: String::new() }]
    }

    /// Scans with this result; returns where the scan started.
    fn look(hints: &ScanHints, found: &[PageRow]) -> Option<Vec<Value>> {
        let probe = hints.probe(&scan("a"));
        let start = probe.start.clone();
        hints.learn(probe, found);
        start
    }

    fn lower(hints: &ScanHints, lane: &str, ready_at: i64) {
        let mut lowest = LowWatermarks::default();
        lowest.note(Index::TaskReady, at(lane, ready_at));
        hints.lower(&LowWatermarks::decode(&lowest.encode()).unwrap());
    }

    #[test]
    fn a_scan_starts_at_the_first_row_of_the_previous_one() {
        let hints = ScanHints::default();
        assert_eq!(look(&hints, &page("a", 5)), None);
        assert_eq!(look(&hints, &page("a", 7)), Some(at("a", 5)));
        assert_eq!(look(&hints, &[]), Some(at("a", 7)));
        assert_eq!(look(&hints, &[]), Some(at("a", 7)));
        hints.forget();
        assert_eq!(look(&hints, &[]), None);
    }

    #[test]
    fn an_insert_before_the_hint_lowers_it() {
        let hints = ScanHints::default();
        look(&hints, &page("a", 50));
        lower(&hints, "b", 10);
        lower(&hints, "a", 60);
        assert_eq!(look(&hints, &page("a", 50)), Some(at("a", 50)));
        lower(&hints, "a", 20);
        assert_eq!(look(&hints, &page("a", 20)), Some(at("a", 20)));
    }

    #[test]
    fn an_update_during_a_scan_is_not_lost() {
        let hints = ScanHints::default();
        look(&hints, &page("a", 10));
        let probe = hints.probe(&scan("a"));
        lower(&hints, "a", 20);
        lower(&hints, "a", 90);
        hints.learn(probe, &page("a", 50));
        assert_eq!(look(&hints, &page("a", 50)), Some(at("a", 20)));
        assert_eq!(look(&hints, &page("a", 50)), Some(at("a", 50)), "the updates are consumed");
    }

    #[test]
    fn too_many_updates_during_a_scan_discard_its_result() {
        let hints = ScanHints::default();
        look(&hints, &page("a", 10));
        let probe = hints.probe(&scan("a"));
        for nth in 0..=MOST_RECENT as i64 {
            lower(&hints, "a", 20 + nth);
        }
        hints.learn(probe, &page("a", 50));
        assert_eq!(look(&hints, &page("a", 20)), Some(at("a", 10)));
        let probe = hints.probe(&scan("a"));
        lower(&hints, "a", 5);
        hints.forget();
        look(&hints, &page("a", 10));
        hints.learn(probe, &page("a", 50));
        assert_eq!(look(&hints, &[]), Some(at("a", 10)), "the scan predates the hints");
    }

    #[test]
    fn only_queue_heads_are_remembered() {
        let hints = ScanHints::default();
        let range = windlass_core::Range { index: Index::ReadyRouteByLane, ..scan("a").range };
        for scan in [Scan { after: Some(at("a", 3)), ..scan("a") }, Scan { range, ..scan("a") }] {
            hints.learn(hints.probe(&scan), &page("a", 5));
            assert_eq!(hints.probe(&scan).start, None, "{scan:?}");
        }
    }
}
