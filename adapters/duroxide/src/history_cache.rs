use std::collections::HashMap;
use std::sync::Mutex;

use duroxide::Event;
use windlass_core::{Task, TaskId, Timestamp};

/// The minimum number of rows of a cached history. Shorter ones are cheap to read.
const MIN_ROWS: u32 = 64;

/// The maximum size of all cached histories, in encoded bytes.
const MAX_BYTES: u64 = 64 * 1_024 * 1_024;

/// A cache of long histories. A history only grows, so that a cached one is always a prefix.
#[derive(Debug, Default)]
pub(crate) struct HistoryCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    histories: HashMap<TaskId, CachedHistory>,
    bytes: u64,
}

/// The first rows of an execution of an instance.
#[derive(Debug)]
pub(crate) struct CachedHistory {
    /// Distinguishes instances with the same name over time.
    created_at: Timestamp,
    execution: u32,
    pub(crate) rows: u32,
    /// The size that the instance reports.
    pub(crate) bytes: u64,
    pub(crate) events: Vec<Event>,
}

impl CachedHistory {
    pub(crate) fn empty(task: &Task) -> Self {
        let (created_at, execution) = (task.created_at, task.execution);
        Self { created_at, execution, rows: 0, bytes: 0, events: Vec::new() }
    }

    fn is_of(&self, task: &Task, rows: u32) -> bool {
        let same = self.created_at == task.created_at && self.execution == task.execution;
        same && self.rows <= rows
    }
}

impl HistoryCache {
    /// Removes the cached rows of the current execution of an instance with `rows` rows.
    pub(crate) fn take(&self, task: &Task, rows: u32) -> CachedHistory {
        let mut entries = self.0.lock().expect("no code panics under this lock");
        let found = entries.histories.remove(&task.id);
        entries.bytes -= found.as_ref().map_or(0, |found| found.bytes);
        let found = found.filter(|found| found.is_of(task, rows));
        found.unwrap_or_else(|| CachedHistory::empty(task))
    }

    /// Caches the rows again, with those read since.
    pub(crate) fn put(&self, id: &TaskId, cached: CachedHistory) {
        if cached.rows < MIN_ROWS || cached.bytes > MAX_BYTES / 2 {
            return;
        }
        let mut entries = self.0.lock().expect("no code panics under this lock");
        if entries.bytes + cached.bytes > MAX_BYTES {
            *entries = Entries::default();
        }
        entries.bytes += cached.bytes;
        let before = entries.histories.insert(id.clone(), cached);
        entries.bytes -= before.map_or(0, |before| before.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(rows: u32, bytes: u64) -> CachedHistory {
        let (created_at, execution, events) = (Timestamp::default(), 0, Vec::new());
        CachedHistory { created_at, execution, rows, bytes, events }
    }

    #[test]
    fn the_cache_is_bounded_by_bytes() {
        let (cache, half) = (HistoryCache::default(), MAX_BYTES / 2);
        let entries = || {
            let entries = cache.0.lock().expect("no code panics under this lock");
            assert_eq!(entries.bytes, entries.histories.values().map(|one| one.bytes).sum::<u64>());
            (entries.histories.len(), entries.bytes)
        };
        for (id, rows, bytes, expected) in [
            ("short", MIN_ROWS - 1, 1, (0, 0)),
            ("huge", MIN_ROWS, half + 1, (0, 0)),
            ("a", MIN_ROWS, half, (1, half)),
            ("a", MIN_ROWS + 1, half, (1, half)),
            ("b", MIN_ROWS, half - 1, (2, MAX_BYTES - 1)),
            ("c", MIN_ROWS, 2, (1, 2)),
        ] {
            cache.put(&id.into(), cached(rows, bytes));
            assert_eq!(entries(), expected, "{id}");
        }
    }
}
