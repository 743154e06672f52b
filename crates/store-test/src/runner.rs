use std::sync::Arc;

use windlass_core::{
    ChangeSet, Command, Decided, Hints, LoadRequest, Outcome, ReferenceTables, Rejection,
    Timestamp, World, decide, probe,
};
use windlass_store::{CommitId, Store, StoreError};

/// The result of a command.
pub type CommandResult = Result<Outcome, Rejection>;

/// Rounds after which a batch does not converge.
const MOST_ROUNDS: usize = 64;

/// Retries after which a batch starves.
const MOST_RERUNS: usize = 1_000;

/// How the commands of a batch relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As in one caller's job: the batch equals its commands one by one.
    Strict,
    /// As between callers: commands are decided as soon as they can be.
    Free,
}

/// A batch and its results.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub now: Timestamp,
    /// In the order of the commands.
    pub answers: Vec<CommandResult>,
    pub changes: ChangeSet,
    /// Hints for the next batch.
    pub hints: Hints,
}

/// Decides and commits one command in its own batch; retries after a conflict.
pub async fn execute(store: &dyn Store, command: &Command) -> Result<CommandResult, StoreError> {
    let commands = std::slice::from_ref(command);
    let batch = execute_batch(store, commands, Order::Strict, &Hints::default()).await?;
    Ok(batch.answers.into_iter().next().expect("a batch has a result for each command"))
}

/// Decides several commands and commits them in one batch; retries after a conflict.
pub async fn execute_batch(
    store: &dyn Store,
    commands: &[Command],
    order: Order,
    hints: &Hints,
) -> Result<Batch, StoreError> {
    for _ in 0..MOST_RERUNS {
        match attempt(store, commands, order, hints).await {
            Err(StoreError::Conflict) => {}
            Ok((_, Some(commit_id))) => return Err(StoreError::OutcomeUnknown(commit_id)),
            Ok((batch, None)) => return Ok(batch),
            Err(other) => return Err(other),
        }
    }
    Err(StoreError::Conflict)
}

/// One attempt at a batch. With a commit id, its outcome is unknown.
pub(crate) async fn attempt(
    store: &dyn Store,
    commands: &[Command],
    order: Order,
    hints: &Hints,
) -> Result<(Batch, Option<CommitId>), StoreError> {
    let mut tx = store.begin().await?;
    let mut deciding = Deciding::new(tx.now(), commands, order, hints);
    while let Some(wanted) = deciding.round() {
        let wanted = Arc::new(wanted);
        let loaded = tx.load(wanted.clone()).await?;
        deciding.world.absorb(&wanted, loaded);
        if deciding.world.is_late() {
            return Err(StoreError::Conflict);
        }
    }
    let batch = deciding.finish();
    match tx.commit(Arc::new(batch.changes.clone())).await {
        Ok(()) => Ok((batch, None)),
        Err(StoreError::OutcomeUnknown(commit_id)) => Ok((batch, Some(commit_id))),
        Err(error) => Err(error),
    }
}

/// The same on reference tables, at a given time.
pub(crate) fn execute_on_tables(
    tables: &mut ReferenceTables,
    now: Timestamp,
    commands: &[Command],
    order: Order,
) -> Result<Batch, String> {
    let mut deciding = Deciding::new(now, commands, order, &Hints::default());
    while let Some(wanted) = deciding.round() {
        let loaded = tables.load(&wanted);
        deciding.world.absorb(&wanted, loaded);
    }
    let batch = deciding.finish();
    match tables.commit(&batch.changes) {
        Ok(()) => Ok(batch),
        Err(conflict) => Err(format!("{conflict:?} without another writer after {commands:?}")),
    }
}

/// A batch being decided: rounds of deciding, with loads between them.
struct Deciding<'c> {
    world: World,
    commands: &'c [Command],
    order: Order,
    answers: Vec<Option<CommandResult>>,
    rounds: usize,
}

impl<'c> Deciding<'c> {
    fn new(now: Timestamp, commands: &'c [Command], order: Order, hints: &Hints) -> Self {
        let answers = vec![None; commands.len()];
        Self { world: World::new(now, hints.clone()), commands, order, answers, rounds: 0 }
    }

    /// Decides the commands whose records are loaded. Returns the records that the others need, or
    /// none when all are decided.
    fn round(&mut self) -> Option<LoadRequest> {
        self.rounds += 1;
        assert!(self.rounds <= MOST_ROUNDS, "{:?} does not converge", self.commands);
        let mut waiting = false;
        for (command, answer) in self.commands.iter().zip(&mut self.answers) {
            if answer.is_some() {
                continue;
            }
            if waiting && self.order == Order::Strict {
                probe(&mut self.world, command);
                continue;
            }
            match decide(&mut self.world, command) {
                Decided::Ready(ready) => *answer = Some(ready),
                Decided::Parked => waiting = true,
            }
        }
        if !waiting {
            return None;
        }
        Some(self.world.take_load_request().expect("a parked command needs a record"))
    }

    fn finish(self) -> Batch {
        let now = self.world.now();
        let (changes, hints) = self.world.finish();
        let answers = self.answers.into_iter().map(|a| a.expect("every command was decided"));
        Batch { now, answers: answers.collect(), changes, hints }
    }
}
