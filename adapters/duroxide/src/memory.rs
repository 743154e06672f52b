use std::collections::HashMap;
use std::sync::Mutex;

use duroxide::Event;
use windlass_core::{Task, TaskId, Timestamp};

/// From so many rows on a history is remembered. Shorter ones are read faster than they are missed.
const LONG: u32 = 64;

/// How many events are remembered in all.
const MOST_EVENTS: usize = 200_000;

/// Long histories as they were last read. Rows are only ever added to a history, so that what is
/// remembered of one is its beginning.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    histories: HashMap<TaskId, Remembered>,
    events: usize,
}

/// The first rows of an execution of an instance.
#[derive(Debug)]
pub(crate) struct Remembered {
    /// Tells it from another instance of the same name, before or after it.
    created_at: Timestamp,
    generation: u32,
    pub(crate) rows: u32,
    pub(crate) events: Vec<Event>,
}

impl Remembered {
    pub(crate) fn nothing_of(task: &Task) -> Self {
        let (created_at, generation) = (task.created_at, task.generation);
        Self { created_at, generation, rows: 0, events: Vec::new() }
    }

    fn is_of(&self, task: &Task, rows: u32) -> bool {
        let same = self.created_at == task.created_at && self.generation == task.generation;
        same && self.rows <= rows
    }
}

impl Memory {
    /// Takes out what is remembered of the present execution of an instance that has so many rows.
    pub(crate) fn recall(&self, task: &Task, rows: u32) -> Remembered {
        let mut held = self.0.lock().expect("nothing panics while it holds them");
        let found = held.histories.remove(&task.id);
        held.events -= found.as_ref().map_or(0, |found| found.events.len());
        let found = found.filter(|found| found.is_of(task, rows));
        found.unwrap_or_else(|| Remembered::nothing_of(task))
    }

    /// Puts it back, with what was read since.
    pub(crate) fn keep(&self, id: &TaskId, remembered: Remembered) {
        if remembered.rows < LONG || remembered.events.len() > MOST_EVENTS / 2 {
            return;
        }
        let mut held = self.0.lock().expect("nothing panics while it holds them");
        if held.events + remembered.events.len() > MOST_EVENTS {
            *held = Held::default();
        }
        held.events += remembered.events.len();
        let before = held.histories.insert(id.clone(), remembered);
        held.events -= before.map_or(0, |before| before.events.len());
    }
}
