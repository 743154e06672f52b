use std::collections::BTreeMap;

use crate::row::{Range, RowKey};
use crate::time::Timestamp;
use crate::world::World;
use crate::world::entry::Slot;

/// What the command under decision has done so far, and where the shared lists stood before it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Draft {
    pub(super) undo: Vec<(RowKey, Slot, bool)>,
    pub(super) touched: Vec<RowKey>,
    pub(super) picked: Vec<RowKey>,
    events: usize,
    payloads: usize,
    wakes: usize,
    trim_through: Option<u64>,
    latest: Timestamp,
    /// How much of each range this command has asked for.
    pub(super) asked: BTreeMap<Range, usize>,
}

impl World {
    /// Starts a command: from here on it can be undone.
    pub(crate) fn open(&mut self) {
        self.draft.undo.clear();
        self.draft.touched.clear();
        self.draft.picked.clear();
        self.draft.events = self.events.len();
        self.draft.payloads = self.payloads.len();
        self.draft.wakes = self.wakes.len();
        self.draft.trim_through = self.trim_through;
        self.draft.latest = self.latest;
        self.draft.asked.clear();
    }

    /// Ends a command that was accepted: those after it see what it did.
    pub(crate) fn accept(&mut self) {
        self.keep_reads();
        self.open();
    }

    /// Ends a command that was rejected. What it read is checked like what an accepted one read.
    pub(crate) fn reject(&mut self) {
        self.undo();
        self.keep_reads();
        self.open();
    }

    /// Ends a command that could not be decided yet. What it picked stays picked for the rest of
    /// the round: otherwise each claimer behind it would pick the same and wait a round for it.
    pub(crate) fn park(&mut self) {
        self.undo();
        self.held.extend(self.draft.picked.drain(..));
        self.open();
    }

    /// Ends a command that panicked, or that was decided only to learn what it needs.
    pub fn abandon(&mut self) {
        self.undo();
        self.open();
    }

    fn keep_reads(&mut self) {
        for key in self.draft.touched.drain(..) {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.read = true;
            }
        }
    }

    fn undo(&mut self) {
        while let Some((key, old, was_changed)) = self.draft.undo.pop() {
            let entry = self.entries.get_mut(&key).expect("it was there to be changed");
            let made = std::mem::replace(&mut entry.slot, old.clone());
            entry.changed = was_changed;
            self.unplace(&key, &made);
            self.place(&key, &old);
        }
        self.events.truncate(self.draft.events);
        self.payloads.truncate(self.draft.payloads);
        self.wakes.truncate(self.draft.wakes);
        self.trim_through = self.draft.trim_through;
        self.latest = self.draft.latest;
    }
}
