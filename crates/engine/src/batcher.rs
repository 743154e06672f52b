use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{Hints, Wake};
use windlass_store::{Notice, Store, StoreError, Ticket};

use crate::answer::{Answerer, Reply};
use crate::batch::{Committed, Tried, attempt, found_nothing};
use crate::error::Error;
use crate::inbox::{Inbox, Intake, Job};
use crate::stats::{Counters, add};
use crate::subscription::Commits;
use crate::timer::Timer;
use crate::waiters::Waiters;

/// After so many conflicts in a row a batch is halved: fewer records, fewer rivals.
const CONFLICTS_BEFORE_SPLIT: u32 = 8;
/// A single job that loses so often is told so.
const MOST_CONFLICTS: u32 = 200;
/// A conflict may take long, where somebody holds a record and does not let go: others of the batch
/// must not wait for it, and whoever needs it is told at last.
const LONG_BEFORE_SPLIT: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(10);
/// A transaction whose connection broke may be under way for some seconds.
const MOST_LOOKUPS: u32 = 8;

/// Takes what is queued, decides it, commits it, answers it: one batch at a time. Where there are
/// several, each is to the others what another node is: they meet in the store alone.
#[derive(Debug)]
pub(crate) struct Batcher {
    /// Which one it is.
    pub(crate) number: usize,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) answerer: Answerer,
    pub(crate) timer: Arc<Timer>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) waiters: Waiters,
    pub(crate) hints: Hints,
}

/// What is left to do about a batch that could not be committed as it was.
enum Verdict {
    Done,
    /// Try its halves apart.
    Split(Vec<Job>),
    /// Try it once more when the others are done.
    Later(Vec<Job>),
    /// Tell everybody.
    Answer(Vec<Job>, Error),
}

/// What holds for all parts of a batch, until each of its jobs has an answer.
struct Turn {
    /// Nothing of it was tried yet, and more may be added.
    may_grow: bool,
    /// Other parts wait for the one that is tried.
    others: bool,
    /// Who conflicts after this is told so.
    give_up_at: Instant,
}

impl Batcher {
    pub(crate) async fn run(mut self) {
        // However this ends, nobody waits for an answer that does not come.
        let _end = End(self.inbox.clone());
        while let Some(intake) = self.inbox.next(self.number).await {
            let (jobs, foreign) = self.gather(intake);
            if !jobs.is_empty() || self.waiters.concern(&foreign) {
                self.settle(jobs, &foreign).await;
                // Those who were just answered may have something to add to the next batch.
                tokio::task::yield_now().await;
            }
        }
        for job in self.waiters.take_all() {
            self.answerer.fail(job, &Error::ShuttingDown);
        }
    }

    /// The jobs of the next batch, without claims that nobody waits for any more, and what others
    /// have made ready.
    fn gather(&mut self, intake: Intake) -> (Vec<Job>, Vec<Wake>) {
        let mut jobs = intake.jobs;
        jobs.retain(is_wanted);
        let mut foreign = Vec::new();
        for notice in intake.notices {
            self.commits.notify();
            match notice {
                Notice::Changed { wakes, next_due } => {
                    let each = wakes.iter().flat_map(|(wake, n)| repeat_n(wake, *n as usize));
                    foreign.extend(each.cloned());
                    self.timer.lower(next_due);
                }
                Notice::Anything => {
                    jobs.extend(self.waiters.take_all());
                    self.timer.now();
                }
            }
        }
        (jobs, foreign)
    }

    /// Brings every job to an answer.
    async fn settle(&mut self, jobs: Vec<Job>, foreign: &[Wake]) {
        let mut open = vec![jobs];
        let mut turn = Turn { may_grow: true, others: false, give_up_at: Instant::now() + LONGEST };
        while let Some(jobs) = open.pop() {
            turn.others = !open.is_empty();
            match self.try_batch(jobs, foreign, &mut turn).await {
                Verdict::Done => {}
                Verdict::Answer(mut jobs, error) => {
                    // Nobody will tell of what others did a second time.
                    jobs.extend(self.waiters.take_concerned(foreign));
                    jobs.into_iter().for_each(|job| self.answerer.fail(job, &error));
                }
                Verdict::Later(jobs) => open.insert(0, jobs),
                Verdict::Split(mut jobs) => {
                    add(&self.counters.splits, 1);
                    let second = jobs.split_off(jobs.len() / 2);
                    open.push(second);
                    open.push(jobs);
                }
            }
        }
    }

    async fn try_batch(
        &mut self,
        mut jobs: Vec<Job>,
        foreign: &[Wake],
        turn: &mut Turn,
    ) -> Verdict {
        let (mut conflicts, mut ahead) = (0, BTreeSet::new());
        let begun_at = Instant::now();
        loop {
            let clock_at = self.timer.clock();
            let begun = self.store.begin().await;
            if begun.is_ok() && std::mem::take(&mut turn.may_grow) {
                // Beginning may have taken a while, in which callers came.
                self.inbox.fill_up(&mut jobs);
                jobs.retain(is_wanted);
            }
            let own = jobs.len();
            let hints = std::mem::take(&mut self.hints);
            let tried = match begun {
                Ok(tx) => {
                    attempt(tx, &mut jobs, foreign, &mut self.waiters, &mut ahead, hints).await
                }
                Err(error) => Tried::Failed(error),
            };
            let error = match tried {
                Tried::Committed(batch) => {
                    self.timer.adjust(batch.at, clock_at);
                    self.finish(jobs, batch);
                    return Verdict::Done;
                }
                Tried::Unknown(batch, ticket) => match self.look_up(&ticket).await {
                    Some(true) => {
                        self.finish(jobs, batch);
                        return Verdict::Done;
                    }
                    Some(false) => StoreError::Conflict,
                    None => return Verdict::Answer(jobs, Error::OutcomeUnknown),
                },
                Tried::Failed(error) => error,
            };
            // Claims that had joined for what this batch would have made ready go on waiting.
            self.waiters.restore(jobs.split_off(own));
            match error {
                StoreError::Conflict => {
                    add(&self.counters.conflicts, 1);
                    conflicts += 1;
                    let took = begun_at.elapsed();
                    let often = conflicts >= CONFLICTS_BEFORE_SPLIT || took >= LONG_BEFORE_SPLIT;
                    if often && jobs.len() > 1 {
                        return Verdict::Split(jobs);
                    }
                    if conflicts >= MOST_CONFLICTS || Instant::now() >= turn.give_up_at {
                        return Verdict::Answer(jobs, error.into());
                    }
                    if turn.others && took >= LONG_BEFORE_SPLIT {
                        return Verdict::Later(jobs);
                    }
                    tokio::task::yield_now().await;
                }
                StoreError::Refused(_) if jobs.len() > 1 => return Verdict::Split(jobs),
                other => {
                    tracing::warn!(error = %other, jobs = jobs.len(), "a batch failed");
                    return Verdict::Answer(jobs, other.into());
                }
            }
        }
    }

    /// Whether a commit whose answer was lost took effect; none when it cannot be learned.
    async fn look_up(&self, ticket: &Ticket) -> Option<bool> {
        let mut pause = Duration::from_millis(50);
        for _ in 0..MOST_LOOKUPS {
            match self.store.outcome(ticket).await {
                Ok(committed) => return Some(committed),
                Err(error) => tracing::warn!(%error, "the outcome of a commit is not known yet"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        None
    }

    fn finish(&mut self, jobs: Vec<Job>, batch: Committed) {
        let Committed { answers, changes, hints, rounds, .. } = batch;
        self.hints = hints;
        add(&self.counters.batches, 1);
        add(&self.counters.commands, answers.iter().map(|job| job.len() as u64).sum());
        add(&self.counters.rounds, rounds);
        self.timer.lower(changes.next_due);
        if !changes.events.is_empty() {
            self.commits.notify();
        }
        let wakes = !changes.wakes.is_empty() || !changes.left_ready.is_empty();
        if wakes && self.inbox.has_others() {
            self.inbox.push_notice(Some(self.number), &Notice::with_left(&changes));
        }
        let mut answered = Vec::with_capacity(jobs.len());
        for (job, answers) in jobs.into_iter().zip(answers) {
            if job.waits() && answers.iter().all(found_nothing) {
                self.waiters.add(job);
            } else {
                answered.push((job.reply, answers));
            }
        }
        self.answerer.answer(answered);
    }
}

/// Whether somebody waits for it: a claim whose caller has left is not worth a lease.
fn is_wanted(job: &Job) -> bool {
    !(matches!(job.reply, Reply::Claim { .. }) && job.reply.is_closed())
}

struct End(Arc<Inbox>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}
