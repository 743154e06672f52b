use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windlass_core::{
    ChangeSet, Command, Decided, Hints, LoadRequest, Outcome, RowKey, Timestamp, Wake, World,
    decide, probe,
};
use windlass_store::{StoreError, Tx};

use crate::answer::Answer;
use crate::command_queue::Submission;
use crate::error::Error;
use crate::waiters::{Waiters, concerns};
use crate::wake_matcher::WakeMatcher;

/// More rounds than any transition needs. A command still parked after this many is a bug.
const MOST_ROUNDS: u64 = 64;

/// A batch that was decided and committed.
pub(crate) struct Committed {
    /// Results by job, then by command.
    pub(crate) answers: Vec<Vec<Answer>>,
    pub(crate) changes: Arc<ChangeSet>,
    pub(crate) hints: Hints,
    pub(crate) rounds: u64,
    /// Timestamp of the batch, from the store.
    pub(crate) at: Timestamp,
}

/// The result of one attempt at a batch.
pub(crate) enum BatchResult {
    Committed(Committed),
    /// The commit may have succeeded; holds the results in case it did.
    Unknown(Committed, windlass_store::CommitId),
    Failed(StoreError),
}

/// Decides all jobs in one transaction and commits it. Claims that wait for tasks made ready by
/// these jobs or by other nodes (`remote_wakes`) join the batch, so a task can be created and
/// leased in one commit.
///
/// `preload` collects the contended records of this batch. A retry loads them first, in one query,
/// so that all writers lock them in the same order.
pub(crate) async fn attempt(
    mut tx: Box<dyn Tx>,
    jobs: &mut Vec<Submission>,
    remote_wakes: &[Wake],
    waiters: &mut Waiters,
    preload: &mut BTreeSet<RowKey>,
    hints: Hints,
) -> BatchResult {
    let at = tx.now();
    let mut world = World::new(at, hints);
    let mut deck = BatchState { calls: WakeMatcher::of(remote_wakes), ..BatchState::default() };
    let mut rounds = 0;
    if !preload.is_empty() {
        let rows = preload.iter().cloned().collect();
        let wanted = Arc::new(LoadRequest { rows, ..LoadRequest::default() });
        match tx.load(wanted.clone()).await {
            Ok(loaded) => world.absorb(&wanted, loaded),
            Err(error) => return BatchResult::Failed(error),
        }
    }
    loop {
        rounds += 1;
        deck.round(&mut world, jobs);
        if deck.is_done() {
            if !deck.call(&world, jobs, waiters) {
                break;
            }
            continue;
        }
        let Some(wanted) = world.take_load_request().filter(|_| rounds < MOST_ROUNDS) else {
            deck.give_up(jobs);
            break;
        };
        let contended = |key: &&RowKey| key.table.spec().contended.is_some();
        preload.extend(wanted.rows.iter().filter(contended).cloned());
        let wanted = Arc::new(wanted);
        match tx.load(wanted.clone()).await {
            Ok(loaded) => world.absorb(&wanted, loaded),
            Err(error) => return BatchResult::Failed(error),
        }
        if world.is_late() {
            return BatchResult::Failed(StoreError::Conflict);
        }
    }
    let (changes, hints) = world.finish();
    let changes = Arc::new(changes);
    let committed = tx.commit(changes.clone()).await;
    let batch = Committed { answers: deck.into_answers(), changes, hints, rounds, at };
    match committed {
        Ok(()) => BatchResult::Committed(batch),
        Err(StoreError::OutcomeUnknown(commit_id)) => BatchResult::Unknown(batch, commit_id),
        Err(error) => BatchResult::Failed(error),
    }
}

/// State of a batch: the results so far, and the wakes already matched to claims.
#[derive(Default)]
struct BatchState {
    answers: Vec<Vec<Option<Answer>>>,
    wakes_seen: usize,
    calls: WakeMatcher,
    /// Number of jobs whose results have been matched against open wakes.
    counted: usize,
}

impl BatchState {
    /// Decides every command without a result. Commands behind a parked one of the same job are
    /// only probed, to collect the records they need.
    fn round(&mut self, world: &mut World, jobs: &[Submission]) {
        for job in &jobs[self.answers.len()..] {
            self.answers.push(job.commands.iter().map(|_| None).collect());
        }
        for (job, answers) in jobs.iter().zip(&mut self.answers) {
            let mut parked = false;
            for (command, answer) in job.commands.iter().zip(answers) {
                if answer.is_some() {
                    continue;
                }
                if parked {
                    // A panic is reported when the command is decided; here it only ends the probe.
                    if catch_unwind(AssertUnwindSafe(|| probe(world, command))).is_err() {
                        world.abandon();
                    }
                } else {
                    *answer = decide_safely(world, command);
                    parked = answer.is_none();
                }
            }
        }
    }

    /// Adds waiting claims that match tasks made ready; returns whether anything is left to decide.
    fn call(&mut self, world: &World, jobs: &mut Vec<Submission>, waiters: &mut Waiters) -> bool {
        let fresh = &world.wakes_since(self.wakes_seen)[..];
        self.wakes_seen = world.wakes_seen();
        for (job, answers) in jobs.iter().zip(&self.answers).skip(self.counted) {
            self.calls.answered(job, answers);
        }
        self.counted = jobs.len();
        let reopened = self.retry_empty_claims(jobs, fresh);
        let called = self.calls.call(fresh, waiters);
        let more = reopened || !called.is_empty();
        jobs.extend(called);
        more
    }

    /// Re-decides claims of this batch that found nothing if a later command made a matching task
    /// ready. Otherwise they would be parked while the task is ready.
    fn retry_empty_claims(&mut self, jobs: &[Submission], wakes: &[Wake]) -> bool {
        let mut reopened = false;
        for (job, answers) in jobs.iter().zip(&mut self.answers) {
            let nothing = matches!(&answers[..], [Some(answer)] if found_nothing(answer));
            if nothing && job.waits() && wakes.iter().any(|wake| concerns(wake, job)) {
                answers[0] = None;
                reopened = true;
            }
        }
        reopened
    }

    fn is_done(&self) -> bool {
        self.answers.iter().flatten().all(Option::is_some)
    }

    fn give_up(&mut self, jobs: &[Submission]) {
        for (job, answers) in jobs.iter().zip(&mut self.answers) {
            for (command, answer) in job.commands.iter().zip(answers) {
                if answer.is_none() {
                    tracing::error!(?command, "command did not converge");
                    *answer = Some(Err(Error::Bug { command: command.name() }));
                }
            }
        }
    }

    fn into_answers(self) -> Vec<Vec<Answer>> {
        let given = |answer: Option<Answer>| answer.expect("every command has a result");
        self.answers.into_iter().map(|job| job.into_iter().map(given).collect()).collect()
    }
}

/// Whether a claim found no task.
pub(crate) fn found_nothing(answer: &Answer) -> bool {
    matches!(answer, Ok(Outcome::Claimed(tasks)) if tasks.is_empty())
}

/// Decides one command. A panic fails only this command.
fn decide_safely(world: &mut World, command: &Command) -> Option<Answer> {
    match catch_unwind(AssertUnwindSafe(|| decide(world, command))) {
        Ok(Decided::Ready(answer)) => Some(answer.map_err(Error::Rejected)),
        Ok(Decided::Parked) => None,
        Err(_) => {
            world.abandon();
            tracing::error!(?command, "deciding a command panicked");
            Some(Err(Error::Bug { command: command.name() }))
        }
    }
}
