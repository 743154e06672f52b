use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windlass_core::{
    ChangeSet, Command, Decided, Hints, LoadRequest, Outcome, RowKey, Timestamp, Wake, World,
    decide, probe,
};
use windlass_store::{StoreError, Tx};

use crate::command_queue::Submission;
use crate::error::Error;
use crate::reply::CommandResult;
use crate::waiters::{Waiters, matches_claim};
use crate::wake_matcher::WakeMatcher;

/// More rounds than any transition needs. A command still parked after this many is a bug.
const MAX_ROUNDS: u64 = 64;

/// A batch that was decided and committed.
pub(crate) struct Committed {
    /// Results by job, then by command.
    pub(crate) results: Vec<Vec<CommandResult>>,
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
pub(crate) async fn run_batch(
    mut tx: Box<dyn Tx>,
    jobs: &mut Vec<Submission>,
    remote_wakes: &[Wake],
    waiters: &mut Waiters,
    preload: &mut BTreeSet<RowKey>,
    hints: Hints,
) -> BatchResult {
    let at = tx.now();
    let mut world = World::new(at, hints);
    let mut state = BatchState { matcher: WakeMatcher::of(remote_wakes), ..BatchState::default() };
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
        state.round(&mut world, jobs);
        if state.is_done() {
            if !state.pull_waiters(&world, jobs, waiters) {
                break;
            }
            continue;
        }
        let Some(wanted) = world.take_load_request().filter(|_| rounds < MAX_ROUNDS) else {
            state.fail_unconverged(jobs);
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
    let batch = Committed { results: state.into_results(), changes, hints, rounds, at };
    match committed {
        Ok(()) => BatchResult::Committed(batch),
        Err(StoreError::OutcomeUnknown(commit_id)) => BatchResult::Unknown(batch, commit_id),
        Err(error) => BatchResult::Failed(error),
    }
}

/// State of a batch: the results so far, and the wakes already matched to claims.
#[derive(Default)]
struct BatchState {
    results: Vec<Vec<Option<CommandResult>>>,
    wakes_seen: usize,
    matcher: WakeMatcher,
    /// Number of jobs whose results have been matched against open wakes.
    counted: usize,
}

impl BatchState {
    /// Decides every command without a result. Commands behind a parked one of the same job are
    /// only probed, to collect the records they need.
    fn round(&mut self, world: &mut World, jobs: &[Submission]) {
        for job in &jobs[self.results.len()..] {
            self.results.push(job.commands.iter().map(|_| None).collect());
        }
        for (job, results) in jobs.iter().zip(&mut self.results) {
            let mut parked = false;
            for (command, result) in job.commands.iter().zip(results) {
                if result.is_some() {
                    continue;
                }
                if parked {
                    // A panic is reported when the command is decided; here it only ends the probe.
                    if catch_unwind(AssertUnwindSafe(|| probe(world, command))).is_err() {
                        world.abandon();
                    }
                } else {
                    *result = decide_safely(world, command);
                    parked = result.is_none();
                }
            }
        }
    }

    /// Adds waiting claims that match tasks made ready; returns whether anything is left to decide.
    fn pull_waiters(
        &mut self,
        world: &World,
        jobs: &mut Vec<Submission>,
        waiters: &mut Waiters,
    ) -> bool {
        let fresh = &world.wakes_since(self.wakes_seen)[..];
        self.wakes_seen = world.wakes_seen();
        for (job, results) in jobs.iter().zip(&self.results).skip(self.counted) {
            self.matcher.consume(job, results);
        }
        self.counted = jobs.len();
        let retried = self.retry_empty_claims(jobs, fresh);
        let pulled = self.matcher.pull_waiters(fresh, waiters);
        let more = retried || !pulled.is_empty();
        jobs.extend(pulled);
        more
    }

    /// Re-decides claims of this batch that found nothing if a later command made a matching task
    /// ready. Otherwise they would be parked while the task is ready.
    fn retry_empty_claims(&mut self, jobs: &[Submission], wakes: &[Wake]) -> bool {
        let mut retried = false;
        for (job, results) in jobs.iter().zip(&mut self.results) {
            let nothing = matches!(&results[..], [Some(result)] if found_nothing(result));
            if nothing && job.waits() && wakes.iter().any(|wake| matches_claim(wake, job)) {
                results[0] = None;
                retried = true;
            }
        }
        retried
    }

    fn is_done(&self) -> bool {
        self.results.iter().flatten().all(Option::is_some)
    }

    fn fail_unconverged(&mut self, jobs: &[Submission]) {
        for (job, results) in jobs.iter().zip(&mut self.results) {
            for (command, result) in job.commands.iter().zip(results) {
                if result.is_none() {
                    tracing::error!(?command, rounds = MAX_ROUNDS, "command did not converge");
                    *result = Some(Err(Error::Bug { command: command.name() }));
                }
            }
        }
    }

    fn into_results(self) -> Vec<Vec<CommandResult>> {
        let given = |result: Option<CommandResult>| result.expect("every command has a result");
        self.results.into_iter().map(|job| job.into_iter().map(given).collect()).collect()
    }
}

/// Whether a claim found no task.
pub(crate) fn found_nothing(result: &CommandResult) -> bool {
    matches!(result, Ok(Outcome::Claimed(tasks)) if tasks.is_empty())
}

/// Decides one command. A panic fails only this command.
fn decide_safely(world: &mut World, command: &Command) -> Option<CommandResult> {
    match catch_unwind(AssertUnwindSafe(|| decide(world, command))) {
        Ok(Decided::Ready(result)) => Some(result.map_err(Error::Rejected)),
        Ok(Decided::Parked) => None,
        Err(_) => {
            world.abandon();
            tracing::error!(?command, "command panicked");
            Some(Err(Error::Bug { command: command.name() }))
        }
    }
}
