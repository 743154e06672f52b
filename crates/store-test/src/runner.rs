use std::sync::Arc;

use windlass_core::{
    ChangeSet, Command, Decided, Hints, Outcome, Rejection, Shelf, Timestamp, Wanted, World,
    decide, probe,
};
use windlass_store::{Store, StoreError, Ticket};

/// What comes of a command.
pub type Answer = Result<Outcome, Rejection>;

/// A batch that needs more rounds than this never settles.
const MOST_ROUNDS: usize = 64;

/// A batch that is rerun more often than this starves.
const MOST_RERUNS: usize = 1_000;

/// How the commands of a batch stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As in one caller's many-command call: the batch is worth its commands one by one.
    Strict,
    /// As between callers: whoever can be decided first is.
    Free,
}

/// A batch and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub now: Timestamp,
    /// In the order of the commands.
    pub answers: Vec<Answer>,
    pub changes: ChangeSet,
    /// What the next batch may guess with.
    pub hints: Hints,
}

/// Decides and commits one command by itself; reruns it after a conflict.
pub async fn execute(store: &dyn Store, command: &Command) -> Result<Answer, StoreError> {
    let commands = std::slice::from_ref(command);
    let batch = execute_batch(store, commands, Order::Strict, &Hints::default()).await?;
    Ok(batch.answers.into_iter().next().expect("a batch answers each of its commands"))
}

/// Decides several commands in one world and commits them together; reruns them after a conflict.
pub async fn execute_batch(
    store: &dyn Store,
    commands: &[Command],
    order: Order,
    hints: &Hints,
) -> Result<Batch, StoreError> {
    for _ in 0..MOST_RERUNS {
        match attempt(store, commands, order, hints).await {
            Err(StoreError::Conflict) => {}
            Ok((_, Some(ticket))) => return Err(StoreError::OutcomeUnknown(ticket)),
            Ok((batch, None)) => return Ok(batch),
            Err(other) => return Err(other),
        }
    }
    Err(StoreError::Conflict)
}

/// One try at a batch. With a ticket it may or may not have been committed.
pub(crate) async fn attempt(
    store: &dyn Store,
    commands: &[Command],
    order: Order,
    hints: &Hints,
) -> Result<(Batch, Option<Ticket>), StoreError> {
    let mut tx = store.begin().await?;
    let mut deciding = Deciding::new(tx.now(), commands, order, hints);
    while let Some(wanted) = deciding.round() {
        let wanted = Arc::new(wanted);
        let loaded = tx.load(wanted.clone()).await?;
        deciding.world.learn(&wanted, loaded);
        if deciding.world.is_late() {
            return Err(StoreError::Conflict);
        }
    }
    let batch = deciding.finish();
    match tx.commit(Arc::new(batch.changes.clone())).await {
        Ok(()) => Ok((batch, None)),
        Err(StoreError::OutcomeUnknown(ticket)) => Ok((batch, Some(ticket))),
        Err(error) => Err(error),
    }
}

/// The same on a shelf, at a time of the caller's choice.
pub(crate) fn execute_on_shelf(
    shelf: &mut Shelf,
    now: Timestamp,
    commands: &[Command],
    order: Order,
) -> Batch {
    let mut deciding = Deciding::new(now, commands, order, &Hints::default());
    while let Some(wanted) = deciding.round() {
        let loaded = shelf.load(&wanted);
        deciding.world.learn(&wanted, loaded);
    }
    let batch = deciding.finish();
    shelf.commit(&batch.changes).expect("nobody else writes to this shelf");
    batch
}

/// A batch under decision: rounds of deciding, with a load between each two.
struct Deciding<'c> {
    world: World,
    commands: &'c [Command],
    order: Order,
    answers: Vec<Option<Answer>>,
    rounds: usize,
}

impl<'c> Deciding<'c> {
    fn new(now: Timestamp, commands: &'c [Command], order: Order, hints: &Hints) -> Self {
        let answers = vec![None; commands.len()];
        Self { world: World::new(now, hints.clone()), commands, order, answers, rounds: 0 }
    }

    /// Decides what can be decided: what is lacking, or nothing when every command is answered.
    fn round(&mut self) -> Option<Wanted> {
        self.rounds += 1;
        assert!(self.rounds <= MOST_ROUNDS, "{:?} never settles", self.commands);
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
        Some(self.world.wanted().expect("a parked command lacks something"))
    }

    fn finish(self) -> Batch {
        let now = self.world.now();
        let (changes, hints) = self.world.finish();
        let answers = self.answers.into_iter().map(|a| a.expect("every command was decided"));
        Batch { now, answers: answers.collect(), changes, hints }
    }
}
