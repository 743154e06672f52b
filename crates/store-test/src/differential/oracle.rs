use std::collections::BTreeSet;

use windlass_core::{ChangeSet, Command, PayloadKey, ReferenceTables, Row, Timestamp};

use super::step::{Operation, Step};
use crate::fixture::inserts;
use crate::runner::{Batch, CommandResult, Order, execute_on_tables};
use crate::snapshot::Snapshot;

/// The reference tables that every store is compared with.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) tables: ReferenceTables,
    last_commit_at: Timestamp,
    /// Every payload ever written, so that an undeleted one is noticed.
    pub(super) payloads: BTreeSet<PayloadKey>,
}

/// The expected result of a step.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) batch: Batch,
    pub(super) snapshot: Snapshot,
    /// Whether the step wrote anything.
    pub(super) wrote: bool,
}

impl Oracle {
    pub(super) fn now(&self, clock: Timestamp) -> Timestamp {
        clock.max(self.last_commit_at.next())
    }

    /// Takes a step; fails with a description if its result is inconsistent.
    pub(super) fn take(&mut self, step: &Step) -> Result<Expected, String> {
        let now = self.now(step.at);
        let batch = match &step.command {
            Operation::Plant(row) => self.plant(now, row),
            Operation::Batch { commands, order } => self.decide(now, commands, *order)?,
        };
        let wrote = !batch.changes.is_empty();
        if wrote {
            self.last_commit_at = now.max(batch.changes.commit_time);
        }
        self.payloads.extend(batch.changes.payloads.iter().map(|(key, _)| key.clone()));
        Ok(Expected { batch, snapshot: Snapshot::of_tables(&self.tables), wrote })
    }

    fn plant(&mut self, now: Timestamp, row: &Row) -> Batch {
        let changes = ChangeSet { commit_time: now, ..inserts([row.clone()]) };
        self.tables.commit(&changes).expect("the planted key is absent");
        Batch { now, answers: Vec::new(), changes, hints: Default::default() }
    }

    fn decide(
        &mut self,
        now: Timestamp,
        commands: &[Command],
        order: Order,
    ) -> Result<Batch, String> {
        let before = self.tables.clone();
        let batch = execute_on_tables(&mut self.tables, now, commands, order)?;
        // A recreated id starts its epochs at a different time.
        let plain = batch.changes.commit_time == now;
        if order == Order::Strict && commands.len() > 1 && plain {
            self.check_one_by_one(before, &batch, commands)?;
        }
        Ok(batch)
    }

    /// A batch in strict order must equal its commands one by one, except for versions.
    fn check_one_by_one(
        &self,
        mut tables: ReferenceTables,
        batch: &Batch,
        commands: &[Command],
    ) -> Result<(), String> {
        let run = |command| tables.execute(batch.now, command);
        let answers: Vec<CommandResult> = commands.iter().map(run).collect();
        if batch.answers != answers {
            return Err(format!("results {:?}, one by one {answers:?}", batch.answers));
        }
        let found = Snapshot::of_tables(&self.tables).without_versions();
        let expected = Snapshot::of_tables(&tables).without_versions();
        match found.difference(&expected) {
            Some(difference) => {
                Err(format!("a batch differs from its commands one by one: {difference}"))
            }
            None => Ok(()),
        }
    }
}
