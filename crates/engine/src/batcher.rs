use std::collections::BTreeSet;
use std::future::poll_fn;
use std::iter::repeat_n;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{Hints, Outcome, Wake};
use windlass_store::{CommitId, Notification, Store, StoreError, Tx};

use crate::answer::{Answerer, Reply};
use crate::batch::{BatchResult, Committed, attempt, found_nothing};
use crate::command_queue::{BatchInput, CommandQueue, ExclusiveQueues, Submission};
use crate::endings::Endings;
use crate::error::Error;
use crate::holders::Holders;
use crate::stats::{Counters, add};
use crate::subscription::Commits;
use crate::timer::Timer;
use crate::waiters::Waiters;

/// Consecutive conflicts after which a batch is halved: smaller batches conflict less.
const CONFLICTS_BEFORE_SPLIT: u32 = 8;
/// Conflicts after which a single job fails with `store_conflict`.
const MOST_CONFLICTS: u32 = 200;
/// A conflict slower than this means that another transaction holds a row lock. The batch is split,
/// lock waits are shortened, and jobs that still conflict are deferred, so that unrelated jobs are
/// not delayed.
const SLOW_CONFLICT: Duration = Duration::from_millis(900);
/// Total lock wait of such a batch, divided among its jobs within the two bounds below. Deferred
/// jobs start with `LONGEST_WAIT`, so that a sequence of short locks does not starve them.
const LOCK_WAIT_BUDGET: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
const ISOLATE_AFTER: Duration = Duration::from_secs(4);
/// A deferred job that has waited this long fails with `store_conflict`.
const CONTENTION_DEADLINE: Duration = Duration::from_secs(10);
/// Limit on the time for a batch that is retried job by job; the rest is deferred.
const MAX_BATCH_TIME: Duration = Duration::from_secs(20);
/// A transaction may stay in flight for several seconds after its connection broke.
const MOST_LOOKUPS: u32 = 8;

/// Takes queued jobs, decides and commits them, and replies: one batch at a time. Several batchers
/// commit independently, like separate nodes.
#[derive(Debug)]
pub(crate) struct Batcher {
    /// Index among the batchers of this engine.
    pub(crate) number: usize,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) inbox: Arc<CommandQueue>,
    pub(crate) answerer: Answerer,
    pub(crate) timer: Arc<Timer>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) endings: Arc<Endings>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) holders: Arc<Holders>,
    pub(crate) waiters: Waiters,
    pub(crate) hints: Hints,
}

/// What to do with a batch after an attempt.
enum Disposition {
    Done,
    /// Retry in smaller parts.
    Split(Vec<Submission>),
    /// Another transaction holds a lock: retry after other jobs.
    Defer(Vec<Submission>),
    /// Fail every job with this error.
    Answer(Vec<Submission>, Error),
}

/// Conflict policy shared by all parts of a batch.
struct ConflictPolicy {
    /// No attempt was made yet, so queued jobs may be added.
    may_grow: bool,
    /// Lock wait limit, set once a lock held by another transaction was met.
    lock_wait: Option<Duration>,
    /// Whether `lock_wait` was already divided among the jobs.
    is_shared: bool,
    /// Retry jobs one by one: halving would repeat a slow refusal each time.
    one_by_one: bool,
    begun_at: Instant,
}

impl ConflictPolicy {
    fn new(hand: ExclusiveQueues) -> Self {
        Self {
            may_grow: !hand.deferred,
            lock_wait: hand.deferred.then_some(LONGEST_WAIT),
            is_shared: false,
            one_by_one: false,
            begun_at: Instant::now(),
        }
    }

    fn share(&mut self, jobs: usize, long: bool) {
        if long && !std::mem::replace(&mut self.is_shared, true) {
            let jobs = u32::try_from(jobs.max(1)).unwrap_or(u32::MAX);
            self.lock_wait = Some((LOCK_WAIT_BUDGET / jobs).clamp(SHORTEST_WAIT, LONGEST_WAIT));
        }
    }
}

impl Batcher {
    pub(crate) async fn run(mut self) {
        // Closes the queue on every exit, so that no caller waits for a dead batcher.
        let _end = End(self.inbox.clone());
        while let Some(intake) = self.inbox.next(self.number).await {
            let hand = intake.hand;
            let (jobs, remote_wakes) = self.gather(intake);
            if !jobs.is_empty() || self.waiters.concern(&remote_wakes) {
                if !catch_panic(self.settle(jobs, &remote_wakes, hand)).await {
                    // Dropping the jobs notifies their callers. Later batches are unaffected.
                    tracing::error!("a batch panicked: the outcome of its commands is unknown");
                    self.commits.notify_foreign();
                    self.put_concerned_aside(&remote_wakes);
                }
                // Lets callers that just got a reply submit to the next batch.
                tokio::task::yield_now().await;
            }
            self.inbox.release(hand);
        }
        for job in self.waiters.take_all() {
            self.answerer.fail(job, &Error::ShuttingDown);
        }
    }

    /// The jobs of the next batch, without claims whose caller has left, and the wakes from other
    /// nodes.
    fn gather(&mut self, intake: BatchInput) -> (Vec<Submission>, Vec<Wake>) {
        let mut jobs = intake.jobs;
        jobs.retain(is_wanted);
        let mut remote_wakes = Vec::new();
        for notice in intake.notices {
            match notice {
                Notification::Changed { wakes, next_due } => {
                    self.holders.tell(wakes.keys());
                    let each = wakes.iter().flat_map(|(wake, n)| repeat_n(wake, *n as usize));
                    remote_wakes.extend(each.cloned());
                    self.timer.lower(next_due);
                }
                Notification::Anything => {
                    jobs.extend(self.waiters.take_all());
                    self.holders.tell_all();
                    self.timer.now();
                }
            }
        }
        (jobs, remote_wakes)
    }

    /// Processes every job until it has a result or is deferred.
    async fn settle(
        &mut self,
        jobs: Vec<Submission>,
        remote_wakes: &[Wake],
        hand: ExclusiveQueues,
    ) {
        let mut turn = ConflictPolicy::new(hand);
        let mut open = vec![jobs];
        while let Some(jobs) = open.pop() {
            if turn.one_by_one && turn.begun_at.elapsed() >= MAX_BATCH_TIME {
                self.put_aside(jobs, turn.begun_at);
                continue;
            }
            match self.try_batch(jobs, remote_wakes, &mut turn).await {
                Disposition::Done => {}
                Disposition::Answer(jobs, error) => {
                    jobs.into_iter().for_each(|job| self.answerer.fail(job, &error));
                    self.put_concerned_aside(remote_wakes);
                }
                Disposition::Defer(jobs) => {
                    self.put_aside(jobs, turn.begun_at);
                    self.put_concerned_aside(remote_wakes);
                }
                Disposition::Split(mut jobs) => {
                    add(&self.counters.splits, 1);
                    let part = if turn.one_by_one { 1 } else { jobs.len().div_ceil(2) };
                    while !jobs.is_empty() {
                        open.push(jobs.split_off((jobs.len() - 1) / part * part));
                    }
                }
            }
        }
    }

    /// Defers waiting claims that match these remote wakes but did not join a batch: the wake is
    /// not repeated.
    fn put_concerned_aside(&mut self, remote_wakes: &[Wake]) {
        for job in self.waiters.take_concerned(remote_wakes) {
            self.put_aside(vec![job], Instant::now());
        }
    }

    fn put_aside(&self, mut jobs: Vec<Submission>, begun_at: Instant) {
        for job in &mut jobs {
            job.give_up_at.get_or_insert(begun_at + CONTENTION_DEADLINE);
        }
        let now = Instant::now();
        let (mut jobs, told): (Vec<Submission>, Vec<Submission>) =
            jobs.into_iter().partition(|job| job.give_up_at.is_some_and(|at| now < at));
        told.into_iter().for_each(|job| self.answerer.fail(job, &StoreError::Conflict.into()));
        match jobs.len() {
            0 => {}
            1 => jobs.drain(..).for_each(|job| self.inbox.put_aside(job)),
            _ => self.inbox.put_aside_first(jobs),
        }
    }

    async fn try_batch(
        &mut self,
        mut jobs: Vec<Submission>,
        wakes: &[Wake],
        turn: &mut ConflictPolicy,
    ) -> Disposition {
        let (mut conflicts, mut preload, begun_at) = (0, BTreeSet::new(), Instant::now());
        loop {
            let (clock_at, batch_began) = (self.timer.clock(), Instant::now());
            let begun = self.begin(turn.lock_wait).await;
            if begun.is_ok() && std::mem::take(&mut turn.may_grow) {
                // Jobs may have been queued while the transaction was opened.
                self.inbox.fill_up(&mut jobs);
                jobs.retain(is_wanted);
            }
            let own = jobs.len();
            let hints = std::mem::take(&mut self.hints);
            let tried = match begun {
                Ok(tx) => {
                    attempt(tx, &mut jobs, wakes, &mut self.waiters, &mut preload, hints).await
                }
                Err(error) => BatchResult::Failed(error),
            };
            let error = match tried {
                BatchResult::Committed(batch) => {
                    self.timer.adjust(batch.at, clock_at);
                    self.finish(jobs, batch, batch_began);
                    return Disposition::Done;
                }
                BatchResult::Unknown(batch, id) => match self.resolve_outcome(&id).await {
                    Some(true) => {
                        self.finish(jobs, batch, batch_began);
                        return Disposition::Done;
                    }
                    Some(false) => StoreError::Conflict,
                    None => return Disposition::Answer(jobs, Error::OutcomeUnknown),
                },
                BatchResult::Failed(error) => error,
            };
            // Claims that joined for tasks of this failed batch are parked again.
            let over = self.waiters.restore(jobs.split_off(own));
            self.answer_empty(over, batch_began);
            match error {
                StoreError::Conflict => {
                    add(&self.counters.conflicts, 1);
                    conflicts += 1;
                    let long = begun_at.elapsed() >= turn.lock_wait.unwrap_or(SLOW_CONFLICT);
                    turn.share(jobs.len(), long);
                    if long && (jobs.len() <= 1 || turn.begun_at.elapsed() >= ISOLATE_AFTER) {
                        return Disposition::Defer(jobs);
                    }
                    if jobs.len() > 1 && (long || conflicts >= CONFLICTS_BEFORE_SPLIT) {
                        return Disposition::Split(jobs);
                    }
                    if conflicts >= MOST_CONFLICTS {
                        return Disposition::Answer(jobs, error.into());
                    }
                    tokio::task::yield_now().await;
                }
                StoreError::Refused(_) if jobs.len() > 1 => {
                    turn.one_by_one |= begun_at.elapsed() >= SLOW_CONFLICT;
                    return Disposition::Split(jobs);
                }
                other => {
                    tracing::warn!(error = %other, jobs = jobs.len(), "batch failed");
                    return Disposition::Answer(jobs, other.into());
                }
            }
        }
    }

    async fn begin(&self, lock_wait: Option<Duration>) -> Result<Box<dyn Tx>, StoreError> {
        let mut tx = self.store.begin().await?;
        if let Some(patience) = lock_wait {
            tx.set_lock_timeout(patience).await?;
        }
        Ok(tx)
    }

    /// Whether a commit with a lost response took effect; none if that cannot be determined.
    async fn resolve_outcome(&self, commit_id: &CommitId) -> Option<bool> {
        let mut pause = Duration::from_millis(50);
        for _ in 0..MOST_LOOKUPS {
            match self.store.outcome(commit_id).await {
                Ok(committed) => return Some(committed),
                Err(error) => tracing::warn!(%error, "the outcome of a commit is still unknown"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        // The commit may have written to the log: its readers must check.
        self.commits.notify_foreign();
        None
    }

    fn finish(&mut self, jobs: Vec<Submission>, batch: Committed, batch_began: Instant) {
        let Committed { answers, changes, hints, rounds, .. } = batch;
        self.hints = hints;
        add(&self.counters.batches, 1);
        add(&self.counters.commands, answers.iter().map(|job| job.len() as u64).sum());
        add(&self.counters.rounds, rounds);
        self.timer.lower(changes.next_due);
        self.holders.tell(changes.wakes.keys());
        if !changes.events.is_empty() {
            self.commits.notify();
            self.endings.tell(&changes.events);
        }
        let wakes = !changes.wakes.is_empty() || !changes.left_ready.is_empty();
        if wakes && self.inbox.has_others() {
            self.inbox.push_notice(Some(self.number), &Notification::with_left(&changes));
        }
        let mut answered = Vec::with_capacity(jobs.len());
        for (job, answers) in jobs.into_iter().zip(answers) {
            let parked = if job.waits() && answers.iter().all(found_nothing) {
                self.waiters.add(Submission { give_up_at: None, ..job })
            } else {
                Some(job)
            };
            answered.extend(parked.map(|job| (job.reply, answers)));
        }
        self.answerer.answer(answered, batch_began);
    }

    /// Replies with an empty result to claims whose wait is over.
    fn answer_empty(&self, claims: Vec<Submission>, batch_began: Instant) {
        let nothing = || vec![Ok(Outcome::Claimed(Vec::new()))];
        let answered = claims.into_iter().map(|job| (job.reply, nothing())).collect();
        self.answerer.answer(answered, batch_began);
    }
}

/// Whether a caller still waits: a lease for a caller that has left would be wasted.
fn is_wanted(job: &Submission) -> bool {
    !(matches!(job.reply, Reply::Claim { .. }) && job.reply.is_closed())
}

/// Runs a future; returns false if it panicked.
async fn catch_panic(work: impl Future<Output = ()>) -> bool {
    let mut work = std::pin::pin!(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
    })
    .await
}

struct End(Arc<CommandQueue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}
