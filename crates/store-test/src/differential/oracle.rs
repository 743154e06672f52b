use std::collections::BTreeSet;

use windlass_core::{ChangeSet, Command, PayloadKey, Row, Shelf, Timestamp};

use super::step::{Deed, Step};
use crate::fixture::inserts;
use crate::runner::{Answer, Batch, Order, execute_on_shelf};
use crate::snapshot::Snapshot;

/// The shelf that every store is compared with.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) shelf: Shelf,
    last_commit_at: Timestamp,
    /// Every payload that ever was, so that one left behind is noticed.
    pub(super) payloads: BTreeSet<PayloadKey>,
}

/// What a step comes to.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) batch: Batch,
    pub(super) snapshot: Snapshot,
    /// Whether it wrote something.
    pub(super) wrote: bool,
}

impl Oracle {
    pub(super) fn now(&self, clock: Timestamp) -> Timestamp {
        clock.max(self.last_commit_at.next())
    }

    /// Takes a step, or says in words why what came of it cannot be right.
    pub(super) fn take(&mut self, step: &Step) -> Result<Expected, String> {
        let now = self.now(step.at);
        let batch = match &step.deed {
            Deed::Plant(row) => self.plant(now, row),
            Deed::Batch { commands, order } => self.decide(now, commands, *order)?,
        };
        let wrote = !batch.changes.is_empty();
        if wrote {
            self.last_commit_at = now.max(batch.changes.now);
        }
        self.payloads.extend(batch.changes.payloads.iter().map(|(key, _)| key.clone()));
        Ok(Expected { batch, snapshot: Snapshot::of_shelf(&self.shelf), wrote })
    }

    fn plant(&mut self, now: Timestamp, row: &Row) -> Batch {
        let changes = ChangeSet { now, ..inserts([row.clone()]) };
        self.shelf.commit(&changes).expect("a step plants where nothing is");
        Batch { now, answers: Vec::new(), changes, hints: Default::default() }
    }

    fn decide(
        &mut self,
        now: Timestamp,
        commands: &[Command],
        order: Order,
    ) -> Result<Batch, String> {
        let before = self.shelf.clone();
        let batch = execute_on_shelf(&mut self.shelf, now, commands, order);
        // An id that went and came again counts its epochs on from a time of its own.
        let plain = batch.changes.now == now;
        if order == Order::Strict && commands.len() > 1 && plain {
            self.check_one_by_one(before, &batch, commands)?;
        }
        Ok(batch)
    }

    /// A batch in strict order is worth its commands one by one. Only versions tell them apart.
    fn check_one_by_one(
        &self,
        mut shelf: Shelf,
        batch: &Batch,
        commands: &[Command],
    ) -> Result<(), String> {
        let run = |command| shelf.execute(batch.now, command);
        let answers: Vec<Answer> = commands.iter().map(run).collect();
        if batch.answers != answers {
            return Err(format!("answers {:?}, one by one {answers:?}", batch.answers));
        }
        let found = Snapshot::of_shelf(&self.shelf).without_versions();
        let expected = Snapshot::of_shelf(&shelf).without_versions();
        match found.difference(&expected) {
            Some(difference) => {
                Err(format!("a batch is not its commands one by one: {difference}"))
            }
            None => Ok(()),
        }
    }
}
