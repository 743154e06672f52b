use std::collections::BTreeSet;
use std::future::poll_fn;
use std::iter::repeat_n;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{Hints, Outcome, TaskKey, Wake};
use windlass_store::{CommitId, Notification, Store, StoreError, Tx};

use crate::batch::{BatchResult, Committed, found_nothing, run_batch};
use crate::command_queue::{BatchInput, CommandQueue, ExclusiveQueues, Submission};
use crate::error::Error;
use crate::keyed_notify::KeyedNotify;
use crate::reply::{Replier, Reply};
use crate::stats::{Counters, add};
use crate::subscription::Commits;
use crate::task_watch::TaskWatch;
use crate::timer::Timer;
use crate::waiters::Waiters;

/// Consecutive conflicts after which a batch is halved: smaller batches conflict less.
const CONFLICTS_BEFORE_SPLIT: u32 = 8;
/// Conflicts after which a single job fails with `store_conflict`.
const MAX_CONFLICTS: u32 = 200;
/// A conflict slower than this means that another transaction holds a row lock. The batch is split,
/// lock waits are shortened, and jobs that still conflict are deferred, so that unrelated jobs are
/// not delayed.
const SLOW_CONFLICT: Duration = Duration::from_millis(900);
/// Total lock wait of such a batch, divided among its jobs within the two bounds below. Deferred
/// jobs start with `MAX_LOCK_WAIT`, so that a sequence of short locks does not starve them.
const LOCK_WAIT_BUDGET: Duration = Duration::from_secs(1);
const MIN_LOCK_WAIT: Duration = Duration::from_millis(5);
const MAX_LOCK_WAIT: Duration = Duration::from_millis(500);
const ISOLATE_AFTER: Duration = Duration::from_secs(4);
/// A deferred job that has waited this long fails with `store_conflict`.
const CONTENTION_DEADLINE: Duration = Duration::from_secs(10);
/// Limit on the time for a batch that is retried job by job; the rest is deferred.
const MAX_BATCH_TIME: Duration = Duration::from_secs(20);
/// A transaction may stay in flight for several seconds after its connection broke.
const MAX_OUTCOME_LOOKUPS: u32 = 8;

/// Takes queued jobs, decides and commits them, and replies: one batch at a time. Several batchers
/// commit independently, like separate nodes.
#[derive(Debug)]
pub(crate) struct Batcher {
    /// Index among the batchers of this engine.
    pub(crate) number: usize,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<CommandQueue>,
    pub(crate) replier: Replier,
    pub(crate) timer: Arc<Timer>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) task_watch: Arc<TaskWatch>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) revocations: Arc<KeyedNotify<TaskKey>>,
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
    Fail(Vec<Submission>, Error),
}

/// Conflict policy shared by all parts of a batch.
struct ConflictPolicy {
    /// No attempt was made yet, so queued jobs may be added.
    may_grow: bool,
    /// Lock wait limit, set once a lock held by another transaction was met.
    lock_wait: Option<Duration>,
    /// Whether `lock_wait` was already divided among the jobs.
    is_divided: bool,
    /// Retry jobs one by one: halving would repeat a slow rejection each time.
    one_by_one: bool,
    begun_at: Instant,
}

impl ConflictPolicy {
    fn new(exclusive: ExclusiveQueues) -> Self {
        Self {
            may_grow: !exclusive.deferred,
            lock_wait: exclusive.deferred.then_some(MAX_LOCK_WAIT),
            is_divided: false,
            one_by_one: false,
            begun_at: Instant::now(),
        }
    }

    fn divide_lock_wait(&mut self, jobs: usize, slow: bool) {
        if slow && !std::mem::replace(&mut self.is_divided, true) {
            let jobs = u32::try_from(jobs.max(1)).unwrap_or(u32::MAX);
            self.lock_wait = Some((LOCK_WAIT_BUDGET / jobs).clamp(MIN_LOCK_WAIT, MAX_LOCK_WAIT));
        }
    }
}

impl Batcher {
    pub(crate) async fn run(mut self) {
        // Closes the queue on every exit, so that no caller waits for a dead batcher.
        let _close = CloseOnDrop(self.queue.clone());
        while let Some(input) = self.queue.next(self.number).await {
            let exclusive = input.exclusive;
            let (jobs, remote_wakes) = self.gather(input);
            if !jobs.is_empty() || self.waiters.match_any(&remote_wakes) {
                if !catch_panic(self.settle(jobs, &remote_wakes, exclusive)).await {
                    // Dropping the jobs notifies their callers. Later batches are unaffected.
                    tracing::error!("batch panicked; the outcome of its commands is unknown");
                    self.commits.notify_remote();
                    self.defer_matching_claims(&remote_wakes);
                }
                // Lets callers that just got a reply submit to the next batch.
                tokio::task::yield_now().await;
            }
            self.queue.release(exclusive);
        }
        for job in self.waiters.take_all() {
            self.replier.fail(job, &Error::ShuttingDown);
        }
    }

    /// The jobs of the next batch, without claims whose caller has left, and the wakes from other
    /// nodes.
    fn gather(&mut self, input: BatchInput) -> (Vec<Submission>, Vec<Wake>) {
        let mut jobs = input.jobs;
        jobs.retain(is_wanted);
        let mut remote_wakes = Vec::new();
        for notification in input.notifications {
            match notification {
                Notification::Changed { wakes, next_due } => {
                    self.revocations.notify(wakes.keys().filter_map(Wake::revoked_task));
                    let each = wakes.iter().flat_map(|(wake, n)| repeat_n(wake, *n as usize));
                    remote_wakes.extend(each.cloned());
                    self.timer.lower(next_due);
                }
                Notification::Anything => {
                    jobs.extend(self.waiters.take_all());
                    self.revocations.notify_all();
                    self.timer.due_now();
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
        exclusive: ExclusiveQueues,
    ) {
        let mut policy = ConflictPolicy::new(exclusive);
        let mut open = vec![jobs];
        while let Some(jobs) = open.pop() {
            if policy.one_by_one && policy.begun_at.elapsed() >= MAX_BATCH_TIME {
                self.defer(jobs, policy.begun_at);
                continue;
            }
            match self.try_batch(jobs, remote_wakes, &mut policy).await {
                Disposition::Done => {}
                Disposition::Fail(jobs, error) => {
                    jobs.into_iter().for_each(|job| self.replier.fail(job, &error));
                    self.defer_matching_claims(remote_wakes);
                }
                Disposition::Defer(jobs) => {
                    self.defer(jobs, policy.begun_at);
                    self.defer_matching_claims(remote_wakes);
                }
                Disposition::Split(mut jobs) => {
                    add(&self.counters.splits, 1);
                    let part = if policy.one_by_one { 1 } else { jobs.len().div_ceil(2) };
                    while !jobs.is_empty() {
                        open.push(jobs.split_off((jobs.len() - 1) / part * part));
                    }
                }
            }
        }
    }

    /// Defers waiting claims that match these remote wakes but did not join a batch: the wake is
    /// not repeated.
    fn defer_matching_claims(&mut self, remote_wakes: &[Wake]) {
        for job in self.waiters.take_matching(remote_wakes) {
            self.defer(vec![job], Instant::now());
        }
    }

    fn defer(&self, mut jobs: Vec<Submission>, begun_at: Instant) {
        for job in &mut jobs {
            job.contention_deadline.get_or_insert(begun_at + CONTENTION_DEADLINE);
        }
        let now = Instant::now();
        let (mut jobs, overdue): (Vec<Submission>, Vec<Submission>) =
            jobs.into_iter().partition(|job| job.contention_deadline.is_some_and(|at| now < at));
        overdue.into_iter().for_each(|job| self.replier.fail(job, &StoreError::Conflict.into()));
        match jobs.len() {
            0 => {}
            1 => jobs.drain(..).for_each(|job| self.queue.defer(job)),
            _ => self.queue.defer_first(jobs),
        }
    }

    async fn try_batch(
        &mut self,
        mut jobs: Vec<Submission>,
        wakes: &[Wake],
        policy: &mut ConflictPolicy,
    ) -> Disposition {
        let (mut conflicts, mut preload, begun_at) = (0, BTreeSet::new(), Instant::now());
        loop {
            let (clock_at, batch_began) = (self.timer.clock(), Instant::now());
            let begun = self.begin(policy.lock_wait).await;
            if begun.is_ok() && std::mem::take(&mut policy.may_grow) {
                // Jobs may have been queued while the transaction was opened.
                self.queue.fill_up(&mut jobs);
                jobs.retain(is_wanted);
            }
            let own = jobs.len();
            let hints = std::mem::take(&mut self.hints);
            let result = match begun {
                Ok(tx) => {
                    run_batch(tx, &mut jobs, wakes, &mut self.waiters, &mut preload, hints).await
                }
                Err(error) => BatchResult::Failed(error),
            };
            let error = match result {
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
                    None => return Disposition::Fail(jobs, Error::OutcomeUnknown),
                },
                BatchResult::Failed(error) => error,
            };
            // Claims that joined for tasks of this failed batch are parked again.
            let over = self.waiters.restore(jobs.split_off(own));
            self.reply_empty(over, batch_began);
            match error {
                StoreError::Conflict => {
                    add(&self.counters.conflicts, 1);
                    conflicts += 1;
                    let slow = begun_at.elapsed() >= policy.lock_wait.unwrap_or(SLOW_CONFLICT);
                    policy.divide_lock_wait(jobs.len(), slow);
                    if slow && (jobs.len() <= 1 || policy.begun_at.elapsed() >= ISOLATE_AFTER) {
                        return Disposition::Defer(jobs);
                    }
                    if jobs.len() > 1 && (slow || conflicts >= CONFLICTS_BEFORE_SPLIT) {
                        return Disposition::Split(jobs);
                    }
                    if conflicts >= MAX_CONFLICTS {
                        return Disposition::Fail(jobs, error.into());
                    }
                    tokio::task::yield_now().await;
                }
                StoreError::Rejected(_) if jobs.len() > 1 => {
                    policy.one_by_one |= begun_at.elapsed() >= SLOW_CONFLICT;
                    return Disposition::Split(jobs);
                }
                other => {
                    tracing::warn!(error = %other, jobs = jobs.len(), "batch failed");
                    return Disposition::Fail(jobs, other.into());
                }
            }
        }
    }

    async fn begin(&self, lock_wait: Option<Duration>) -> Result<Box<dyn Tx>, StoreError> {
        let mut tx = self.store.begin().await?;
        if let Some(lock_wait) = lock_wait {
            tx.set_lock_timeout(lock_wait).await?;
        }
        Ok(tx)
    }

    /// Whether a commit with a lost response took effect; none if that cannot be determined.
    async fn resolve_outcome(&self, commit_id: &CommitId) -> Option<bool> {
        let mut pause = Duration::from_millis(50);
        for _ in 0..MAX_OUTCOME_LOOKUPS {
            match self.store.outcome(commit_id).await {
                Ok(committed) => return Some(committed),
                Err(error) => tracing::warn!(%error, "commit outcome lookup failed"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        // The commit may have written to the log: its readers must check.
        self.commits.notify_remote();
        None
    }

    fn finish(&mut self, jobs: Vec<Submission>, batch: Committed, batch_began: Instant) {
        let Committed { results, changes, hints, rounds, .. } = batch;
        self.hints = hints;
        add(&self.counters.batches, 1);
        add(&self.counters.commands, results.iter().map(|job| job.len() as u64).sum());
        add(&self.counters.rounds, rounds);
        self.timer.lower(changes.next_due);
        self.revocations.notify(changes.wakes.keys().filter_map(Wake::revoked_task));
        if !changes.events.is_empty() {
            self.commits.notify();
            self.task_watch.notify(&changes.events);
        }
        let wakes = !changes.wakes.is_empty() || !changes.left_ready.is_empty();
        if wakes && self.queue.has_others() {
            self.queue.push_notification(Some(self.number), &Notification::with_left(&changes));
        }
        let mut replies = Vec::with_capacity(jobs.len());
        for (job, results) in jobs.into_iter().zip(results) {
            let parked = if job.waits() && results.iter().all(found_nothing) {
                self.waiters.add(Submission { contention_deadline: None, ..job })
            } else {
                Some(job)
            };
            replies.extend(parked.map(|job| (job.reply, results)));
        }
        self.replier.reply(replies, batch_began);
    }

    /// Replies with an empty result to claims whose wait is over.
    fn reply_empty(&self, claims: Vec<Submission>, batch_began: Instant) {
        let nothing = || vec![Ok(Outcome::Claimed(Vec::new()))];
        let replies = claims.into_iter().map(|job| (job.reply, nothing())).collect();
        self.replier.reply(replies, batch_began);
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

struct CloseOnDrop(Arc<CommandQueue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
