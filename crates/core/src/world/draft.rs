use std::collections::BTreeMap;

use crate::row::{Range, RowKey};
use crate::time::Timestamp;
use crate::world::entry::Slot;
use crate::world::{Halt, World};

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

/// How far a command had come at a moment.
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
    /// Does the same with each of several. One that lacks something is undone, and those after it
    /// are done nevertheless: what all of them lack is then loaded together, however many they are.
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
                // Without those before it, its refusal is not the last word.
                Err(Halt::Rejected(rejection)) if !parked => return Err(rejection.into()),
                Err(_) => {
                    self.undo(mark);
                    parked = true;
                }
            }
        }
        if parked { Err(Halt::Parked) } else { Ok(done) }
    }

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
        self.has_changes |= !self.draft.undo.is_empty() || self.events.len() > self.draft.events;
        self.keep_reads();
        self.open();
    }

    /// Ends a command that was rejected. What it read is checked like what an accepted one read.
    pub(crate) fn reject(&mut self) {
        self.undo(self.start());
        self.keep_reads();
        self.open();
    }

    /// Ends a command that could not be decided yet. What it picked stays picked for the rest of
    /// the round: otherwise each claimer behind it would pick the same and wait a round for it.
    pub(crate) fn park(&mut self) {
        self.undo(self.start());
        self.held.extend(self.draft.picked.drain(..));
        self.open();
    }

    /// Ends a command that panicked, or that was decided only to learn what it needs.
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

    /// Where the command stands.
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

    /// Where the command began.
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
            let entry = self.entries.get_mut(&key).expect("it was there to be changed");
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
