use std::collections::BTreeSet;
use std::future::poll_fn;
use std::iter::repeat_n;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{Hints, Outcome, Wake};
use windlass_store::{Notice, Store, StoreError, Ticket, Tx};

use crate::answer::{Answerer, Reply};
use crate::batch::{Committed, Tried, attempt, found_nothing};
use crate::endings::Endings;
use crate::error::Error;
use crate::holders::Holders;
use crate::inbox::{Hand, Inbox, Intake, Job};
use crate::stats::{Counters, add};
use crate::subscription::Commits;
use crate::timer::Timer;
use crate::waiters::Waiters;

/// After so many conflicts in a row a batch is halved: fewer records, fewer rivals.
const CONFLICTS_BEFORE_SPLIT: u32 = 8;
/// A single job that loses so often is told so.
const MOST_CONFLICTS: u32 = 200;
/// A conflict may take long, where somebody holds a record and does not let go. Then the batch is
/// taken apart, and nobody is waited for as long again: what conflicts in that way is put aside, so
/// that others have their turn.
const LONG: Duration = Duration::from_millis(900);
/// How long the parts of such a batch may wait together, and one of them. Few wait for longer, and
/// so does what was put aside before it is taken apart: those who hold something for a moment, one
/// after the other, do not keep it out.
const HURRY: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
const APART: Duration = Duration::from_secs(4);
/// Whoever needs what somebody holds is told at last.
const LONGEST: Duration = Duration::from_secs(10);
/// A batch of which much takes long by itself keeps nobody waiting for longer than this.
const LONGEST_TURN: Duration = Duration::from_secs(20);
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
    pub(crate) endings: Arc<Endings>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) holders: Arc<Holders>,
    pub(crate) waiters: Waiters,
    pub(crate) hints: Hints,
}

/// What is left to do about a batch that could not be committed as it was.
enum Verdict {
    Done,
    /// Try its parts for themselves.
    Split(Vec<Job>),
    /// Somebody holds what it needs: try it again when others have had their turn.
    Aside(Vec<Job>),
    /// Tell everybody.
    Answer(Vec<Job>, Error),
}

/// What holds for all parts of a batch.
struct Turn {
    /// Nothing of it was tried yet, and more may be added.
    may_grow: bool,
    /// Somebody holds what some of it needs: nobody is waited for for longer than this.
    hurry: Option<Duration>,
    /// It is known by how many parts that time is shared.
    is_shared: bool,
    /// Some of it takes too long: halving it would take as long each time.
    one_by_one: bool,
    begun_at: Instant,
}

impl Turn {
    fn new(hand: Hand) -> Self {
        Self {
            may_grow: !hand.aside,
            hurry: hand.aside.then_some(LONGEST_WAIT),
            is_shared: false,
            one_by_one: false,
            begun_at: Instant::now(),
        }
    }

    fn share(&mut self, jobs: usize, long: bool) {
        if long && !std::mem::replace(&mut self.is_shared, true) {
            let jobs = u32::try_from(jobs.max(1)).unwrap_or(u32::MAX);
            self.hurry = Some((HURRY / jobs).clamp(SHORTEST_WAIT, LONGEST_WAIT));
        }
    }
}

impl Batcher {
    pub(crate) async fn run(mut self) {
        // However this ends, nobody waits for an answer that does not come.
        let _end = End(self.inbox.clone());
        while let Some(intake) = self.inbox.next(self.number).await {
            let hand = intake.hand;
            let (jobs, foreign) = self.gather(intake);
            if !jobs.is_empty() || self.waiters.concern(&foreign) {
                if !survives(self.settle(jobs, &foreign, hand)).await {
                    // Its jobs are gone, and their callers know by that. Everybody else goes on.
                    tracing::error!("a batch panicked: what became of its commands is not known");
                    self.commits.notify_foreign();
                    self.put_concerned_aside(&foreign);
                }
                // Those who were just answered may have something to add to the next batch.
                tokio::task::yield_now().await;
            }
            self.inbox.put_down(hand);
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
            match notice {
                Notice::Changed { wakes, next_due } => {
                    self.holders.tell(wakes.keys());
                    let each = wakes.iter().flat_map(|(wake, n)| repeat_n(wake, *n as usize));
                    foreign.extend(each.cloned());
                    self.timer.lower(next_due);
                }
                Notice::Anything => {
                    jobs.extend(self.waiters.take_all());
                    self.holders.tell_all();
                    self.timer.now();
                }
            }
        }
        (jobs, foreign)
    }

    /// Brings every job to an answer, or puts it aside.
    async fn settle(&mut self, jobs: Vec<Job>, foreign: &[Wake], hand: Hand) {
        let mut turn = Turn::new(hand);
        let mut open = vec![jobs];
        while let Some(jobs) = open.pop() {
            if turn.one_by_one && turn.begun_at.elapsed() >= LONGEST_TURN {
                self.put_aside(jobs, turn.begun_at);
                continue;
            }
            match self.try_batch(jobs, foreign, &mut turn).await {
                Verdict::Done => {}
                Verdict::Answer(jobs, error) => {
                    jobs.into_iter().for_each(|job| self.answerer.fail(job, &error));
                    self.put_concerned_aside(foreign);
                }
                Verdict::Aside(jobs) => {
                    self.put_aside(jobs, turn.begun_at);
                    self.put_concerned_aside(foreign);
                }
                Verdict::Split(mut jobs) => {
                    add(&self.counters.splits, 1);
                    let part = if turn.one_by_one { 1 } else { jobs.len().div_ceil(2) };
                    while !jobs.is_empty() {
                        open.push(jobs.split_off((jobs.len() - 1) / part * part));
                    }
                }
            }
        }
    }

    /// Claims that wait for what others did, and that were not called, are tried for themselves:
    /// nobody will tell of it a second time.
    fn put_concerned_aside(&mut self, foreign: &[Wake]) {
        for job in self.waiters.take_concerned(foreign) {
            self.put_aside(vec![job], Instant::now());
        }
    }

    fn put_aside(&self, mut jobs: Vec<Job>, begun_at: Instant) {
        for job in &mut jobs {
            job.give_up_at.get_or_insert(begun_at + LONGEST);
        }
        let now = Instant::now();
        let (mut jobs, told): (Vec<Job>, Vec<Job>) =
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
        mut jobs: Vec<Job>,
        foreign: &[Wake],
        turn: &mut Turn,
    ) -> Verdict {
        let (mut conflicts, mut ahead, begun_at) = (0, BTreeSet::new(), Instant::now());
        loop {
            let (clock_at, batch_began) = (self.timer.clock(), Instant::now());
            let begun = self.begin(turn.hurry).await;
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
                    self.finish(jobs, batch, batch_began);
                    return Verdict::Done;
                }
                Tried::Unknown(batch, ticket) => match self.look_up(&ticket).await {
                    Some(true) => {
                        self.finish(jobs, batch, batch_began);
                        return Verdict::Done;
                    }
                    Some(false) => StoreError::Conflict,
                    None => return Verdict::Answer(jobs, Error::OutcomeUnknown),
                },
                Tried::Failed(error) => error,
            };
            // Claims that had joined for what this batch would have made ready go on waiting.
            let over = self.waiters.restore(jobs.split_off(own));
            self.answer_empty(over, batch_began);
            match error {
                StoreError::Conflict => {
                    add(&self.counters.conflicts, 1);
                    conflicts += 1;
                    let long = begun_at.elapsed() >= turn.hurry.unwrap_or(LONG);
                    turn.share(jobs.len(), long);
                    if long && (jobs.len() <= 1 || turn.begun_at.elapsed() >= APART) {
                        return Verdict::Aside(jobs);
                    }
                    if jobs.len() > 1 && (long || conflicts >= CONFLICTS_BEFORE_SPLIT) {
                        return Verdict::Split(jobs);
                    }
                    if conflicts >= MOST_CONFLICTS {
                        return Verdict::Answer(jobs, error.into());
                    }
                    tokio::task::yield_now().await;
                }
                StoreError::Refused(_) if jobs.len() > 1 => {
                    turn.one_by_one |= begun_at.elapsed() >= LONG;
                    return Verdict::Split(jobs);
                }
                other => {
                    tracing::warn!(error = %other, jobs = jobs.len(), "a batch failed");
                    return Verdict::Answer(jobs, other.into());
                }
            }
        }
    }

    async fn begin(&self, hurry: Option<Duration>) -> Result<Box<dyn Tx>, StoreError> {
        let mut tx = self.store.begin().await?;
        if let Some(patience) = hurry {
            tx.hurry(patience).await?;
        }
        Ok(tx)
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
        // Whoever waits for what it may have done has to look.
        self.commits.notify_foreign();
        None
    }

    fn finish(&mut self, jobs: Vec<Job>, batch: Committed, batch_began: Instant) {
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
            self.inbox.push_notice(Some(self.number), &Notice::with_left(&changes));
        }
        let mut answered = Vec::with_capacity(jobs.len());
        for (job, answers) in jobs.into_iter().zip(answers) {
            let parked = if job.waits() && answers.iter().all(found_nothing) {
                self.waiters.add(Job { give_up_at: None, ..job })
            } else {
                Some(job)
            };
            answered.extend(parked.map(|job| (job.reply, answers)));
        }
        self.answerer.answer(answered, batch_began);
    }

    /// Answers claims that found nothing while their callers waited.
    fn answer_empty(&self, claims: Vec<Job>, batch_began: Instant) {
        let nothing = || vec![Ok(Outcome::Claimed(Vec::new()))];
        let answered = claims.into_iter().map(|job| (job.reply, nothing())).collect();
        self.answerer.answer(answered, batch_began);
    }
}

/// Whether somebody waits for it: a claim whose caller has left is not worth a lease.
fn is_wanted(job: &Job) -> bool {
    !(matches!(job.reply, Reply::Claim { .. }) && job.reply.is_closed())
}

/// Whether it comes to its end without a panic.
async fn survives(work: impl Future<Output = ()>) -> bool {
    let mut work = std::pin::pin!(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
    })
    .await
}

struct End(Arc<Inbox>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}
