use std::collections::BTreeMap;

use crate::row::{Range, RowKey};
use crate::time::Timestamp;
use crate::world::entry::Slot;
use crate::world::{Halt, World};

/// Undo log of the current command, and the lengths of the shared lists before it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct UndoLog {
    pub(super) undo: Vec<(RowKey, Slot, bool)>,
    pub(super) touched: Vec<RowKey>,
    pub(super) picked: Vec<RowKey>,
    events: usize,
    payloads: usize,
    wakes: usize,
    trim_through: Option<u64>,
    latest: Timestamp,
    /// How many rows of each range this command has requested.
    pub(super) asked: BTreeMap<Range, usize>,
}

/// A savepoint of a command.
#[derive(Clone, Copy)]
struct Mark {
    undo: usize,
    events: usize,
    payloads: usize,
    wakes: usize,
    trim_through: Option<u64>,
    latest: Timestamp,
}

impl World {
    /// Runs `work` for each item. An item that parks is undone and the next items still run, so
    /// that all missing records are loaded together.
    pub(crate) fn each<I, T>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        mut work: impl FnMut(&mut World, I) -> Result<T, Halt>,
    ) -> Result<Vec<T>, Halt> {
        let (mut done, mut parked) = (Vec::new(), false);
        for item in items {
            let mark = self.mark();
            match work(self, item) {
                Ok(one) => done.push(one),
                // A rejection after a parked item is not final: the parked item may change it.
                Err(Halt::Rejected(rejection)) if !parked => return Err(rejection.into()),
                Err(_) => {
                    self.undo(mark);
                    parked = true;
                }
            }
        }
        if parked { Err(Halt::Parked) } else { Ok(done) }
    }

    /// Starts a command and its undo log.
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

    /// Ends an accepted command. Its changes are visible to later commands.
    pub(crate) fn accept(&mut self) {
        self.has_changes |= !self.draft.undo.is_empty() || self.events.len() > self.draft.events;
        self.keep_reads();
        self.open();
    }

    /// Ends a rejected command. The commit checks its reads as it does for an accepted one.
    pub(crate) fn reject(&mut self) {
        self.undo(self.start());
        self.keep_reads();
        self.open();
    }

    /// Ends a command that lacks records. Its picked rows stay reserved for the rest of the round.
    /// Otherwise each later claim would pick the same rows and be delayed by a round.
    pub(crate) fn park(&mut self) {
        self.undo(self.start());
        self.picked.extend(self.draft.picked.drain(..));
        self.open();
    }

    /// Ends a command that panicked, or that only ran to find out which records it needs.
    pub fn abandon(&mut self) {
        self.undo(self.start());
        self.open();
    }

    fn keep_reads(&mut self) {
        for key in self.draft.touched.drain(..) {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.read = true;
            }
        }
    }

    /// A savepoint at the present state of the command.
    fn mark(&self) -> Mark {
        Mark {
            undo: self.draft.undo.len(),
            events: self.events.len(),
            payloads: self.payloads.len(),
            wakes: self.wakes.len(),
            trim_through: self.trim_through,
            latest: self.latest,
        }
    }

    /// The savepoint before the command.
    fn start(&self) -> Mark {
        Mark {
            undo: 0,
            events: self.draft.events,
            payloads: self.draft.payloads,
            wakes: self.draft.wakes,
            trim_through: self.draft.trim_through,
            latest: self.draft.latest,
        }
    }

    fn undo(&mut self, mark: Mark) {
        while self.draft.undo.len() > mark.undo {
            let Some((key, old, was_changed)) = self.draft.undo.pop() else { break };
            let entry = self.entries.get_mut(&key).expect("a changed record is loaded");
            let made = std::mem::replace(&mut entry.slot, old.clone());
            entry.changed = was_changed;
            self.unplace(&key, &made);
            self.place(&key, &old);
        }
        self.events.truncate(mark.events);
        self.payloads.truncate(mark.payloads);
        self.wakes.truncate(mark.wakes);
        self.trim_through = mark.trim_through;
        self.latest = mark.latest;
    }
}
