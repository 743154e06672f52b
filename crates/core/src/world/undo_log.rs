use std::collections::BTreeMap;

use crate::row::{Range, RowKey};
use crate::time::Timestamp;
use crate::world::entry::RecordState;
use crate::world::{Halt, World};

/// Undo log of the current command, and the lengths of the shared lists before it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct UndoLog {
    pub(super) undo: Vec<(RowKey, RecordState, bool)>,
    pub(super) reads: Vec<RowKey>,
    pub(super) picked: Vec<RowKey>,
    events: usize,
    payloads: usize,
    wakes: usize,
    trim_through: Option<u64>,
    commit_time: Timestamp,
    /// How many rows of each range this command has requested.
    pub(super) requested: BTreeMap<Range, usize>,
}

/// A savepoint of a command.
#[derive(Clone, Copy)]
struct Savepoint {
    undo: usize,
    events: usize,
    payloads: usize,
    wakes: usize,
    trim_through: Option<u64>,
    commit_time: Timestamp,
}

impl World {
    /// Runs `work` for each item. An item that parks is undone and the next items still run, so
    /// that all missing records are loaded together.
    pub(crate) fn for_each_collecting<I, T>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        mut work: impl FnMut(&mut World, I) -> Result<T, Halt>,
    ) -> Result<Vec<T>, Halt> {
        let (mut done, mut parked) = (Vec::new(), false);
        for item in items {
            let savepoint = self.savepoint();
            match work(self, item) {
                Ok(one) => done.push(one),
                // A rejection after a parked item is not final: the parked item may change it.
                Err(Halt::Rejected(rejection)) if !parked => return Err(rejection.into()),
                Err(_) => {
                    self.roll_back_to(savepoint);
                    parked = true;
                }
            }
        }
        if parked { Err(Halt::Parked) } else { Ok(done) }
    }

    /// Runs `work` and undoes its changes if it is rejected, for a caller that accepts the command
    /// all the same.
    pub(crate) fn undo_if_rejected<T>(
        &mut self,
        work: impl FnOnce(&mut World) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        let savepoint = self.savepoint();
        let done = work(self);
        if matches!(done, Err(Halt::Rejected(_))) {
            self.roll_back_to(savepoint);
        }
        done
    }

    /// Starts a command and its undo log.
    pub(crate) fn begin_command(&mut self) {
        self.undo_log.undo.clear();
        self.undo_log.reads.clear();
        self.undo_log.picked.clear();
        self.undo_log.events = self.events.len();
        self.undo_log.payloads = self.payloads.len();
        self.undo_log.wakes = self.wakes.len();
        self.undo_log.trim_through = self.trim_through;
        self.undo_log.commit_time = self.commit_time;
        self.undo_log.requested.clear();
    }

    /// Ends an accepted command. Its changes are visible to later commands.
    pub(crate) fn accept(&mut self) {
        self.has_changes |=
            !self.undo_log.undo.is_empty() || self.events.len() > self.undo_log.events;
        self.check_reads_at_commit();
        self.begin_command();
    }

    /// Ends a rejected command. The commit checks its reads as it does for an accepted one.
    pub(crate) fn reject(&mut self) {
        self.roll_back_to(self.command_start());
        self.check_reads_at_commit();
        self.begin_command();
    }

    /// Ends a command that lacks records. Its picked rows stay reserved for the rest of the round.
    /// Otherwise each later claim would pick the same rows and be delayed by a round.
    pub(crate) fn park(&mut self) {
        self.roll_back_to(self.command_start());
        self.picked.extend(self.undo_log.picked.drain(..));
        self.begin_command();
    }

    /// Ends a command that panicked, or that only ran to find out which records it needs.
    pub fn abandon(&mut self) {
        self.roll_back_to(self.command_start());
        self.begin_command();
    }

    fn check_reads_at_commit(&mut self) {
        for key in self.undo_log.reads.drain(..) {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.read = true;
            }
        }
    }

    /// A savepoint at the present state of the command.
    fn savepoint(&self) -> Savepoint {
        Savepoint {
            undo: self.undo_log.undo.len(),
            events: self.events.len(),
            payloads: self.payloads.len(),
            wakes: self.wakes.len(),
            trim_through: self.trim_through,
            commit_time: self.commit_time,
        }
    }

    /// The savepoint before the command.
    fn command_start(&self) -> Savepoint {
        Savepoint {
            undo: 0,
            events: self.undo_log.events,
            payloads: self.undo_log.payloads,
            wakes: self.undo_log.wakes,
            trim_through: self.undo_log.trim_through,
            commit_time: self.undo_log.commit_time,
        }
    }

    fn roll_back_to(&mut self, savepoint: Savepoint) {
        while self.undo_log.undo.len() > savepoint.undo {
            let Some((key, old, was_changed)) = self.undo_log.undo.pop() else { break };
            let entry = self.entries.get_mut(&key).expect("a changed record is loaded");
            let made = std::mem::replace(&mut entry.state, old.clone());
            entry.changed = was_changed;
            self.unindex(&key, &made);
            self.index(&key, &old);
        }
        self.events.truncate(savepoint.events);
        self.payloads.truncate(savepoint.payloads);
        self.wakes.truncate(savepoint.wakes);
        self.trim_through = savepoint.trim_through;
        self.commit_time = savepoint.commit_time;
    }
}
