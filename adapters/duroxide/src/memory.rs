use std::collections::HashMap;
use std::sync::Mutex;

use duroxide::Event;
use windlass_core::{Task, TaskId, Timestamp};

/// The minimum number of rows of a cached history. Shorter ones are cheap to read.
const LONG: u32 = 64;

/// The maximum size of all cached histories, in encoded bytes.
const MOST_BYTES: u64 = 64 * 1_024 * 1_024;

/// A cache of long histories. A history only grows, so that a cached one is always a prefix.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    histories: HashMap<TaskId, Remembered>,
    bytes: u64,
}

/// The first rows of an execution of an instance.
#[derive(Debug)]
pub(crate) struct Remembered {
    /// Distinguishes instances with the same name over time.
    created_at: Timestamp,
    generation: u32,
    pub(crate) rows: u32,
    /// The size that the instance reports.
    pub(crate) bytes: u64,
    pub(crate) events: Vec<Event>,
}

impl Remembered {
    pub(crate) fn nothing_of(task: &Task) -> Self {
        let (created_at, generation) = (task.created_at, task.generation);
        Self { created_at, generation, rows: 0, bytes: 0, events: Vec::new() }
    }

    fn is_of(&self, task: &Task, rows: u32) -> bool {
        let same = self.created_at == task.created_at && self.generation == task.generation;
        same && self.rows <= rows
    }
}

impl Memory {
    /// Removes the cached rows of the current execution of an instance with `rows` rows.
    pub(crate) fn recall(&self, task: &Task, rows: u32) -> Remembered {
        let mut held = self.0.lock().expect("no code panics under this lock");
        let found = held.histories.remove(&task.id);
        held.bytes -= found.as_ref().map_or(0, |found| found.bytes);
        let found = found.filter(|found| found.is_of(task, rows));
        found.unwrap_or_else(|| Remembered::nothing_of(task))
    }

    /// Caches the rows again, with those read since.
    pub(crate) fn keep(&self, id: &TaskId, remembered: Remembered) {
        if remembered.rows < LONG || remembered.bytes > MOST_BYTES / 2 {
            return;
        }
        let mut held = self.0.lock().expect("no code panics under this lock");
        if held.bytes + remembered.bytes > MOST_BYTES {
            *held = Held::default();
        }
        held.bytes += remembered.bytes;
        let before = held.histories.insert(id.clone(), remembered);
        held.bytes -= before.map_or(0, |before| before.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered(rows: u32, bytes: u64) -> Remembered {
        let (created_at, generation, events) = (Timestamp::default(), 0, Vec::new());
        Remembered { created_at, generation, rows, bytes, events }
    }

    #[test]
    fn the_cache_is_bounded_by_bytes() {
        let (memory, half) = (Memory::default(), MOST_BYTES / 2);
        let held = || {
            let held = memory.0.lock().expect("no code panics under this lock");
            assert_eq!(held.bytes, held.histories.values().map(|one| one.bytes).sum::<u64>());
            (held.histories.len(), held.bytes)
        };
        for (id, rows, bytes, expected) in [
            ("short", LONG - 1, 1, (0, 0)),
            ("huge", LONG, half + 1, (0, 0)),
            ("a", LONG, half, (1, half)),
            ("a", LONG + 1, half, (1, half)),
            ("b", LONG, half - 1, (2, MOST_BYTES - 1)),
            ("c", LONG, 2, (1, 2)),
        ] {
            memory.keep(&id.into(), remembered(rows, bytes));
            assert_eq!(held(), expected, "{id}");
        }
    }
}
