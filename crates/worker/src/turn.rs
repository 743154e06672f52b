use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use windlass_core::command::{Delay, Fail, Release, ReportProgress, Then};
use windlass_core::{
    Arrival, Carried, FailureClass, Lifecycle, Outcome, Rejection, Retry, Task, Timestamp,
};
use windlass_engine::{Came, Claimed, Error, Input};

use crate::attempt::NextTurn;
use crate::cache::Position;
use crate::calls::TurnCalls;
use crate::commit::{Draft, Followers, then};
use crate::lease::{Ending, Granted, Lease, may_pass};
use crate::pause::Pause;
use crate::pulse::PATIENCE;
use crate::recording::begin;
use crate::settlement::Answer;
use crate::team::Team;
use crate::token::Token;
use crate::worker::Worker;
use crate::workflow::{Finished, Instance, Part, Turn, TurnFailure};

/// How long a workflow is put off whose code is not known here, or does not fit its history.
const UNKNOWN: Duration = Duration::from_secs(10);
const BROKEN: Duration = Duration::from_secs(30);

/// One lease of a workflow: as many turns as there are to be made under it.
#[derive(Debug)]
pub(crate) struct TurnAttempt {
    team: Arc<Team>,
    task: Arc<Task>,
    input: Input,
    lease: Lease,
    begun: Mutex<Option<Box<Begun>>>,
    followers: UnboundedSender<Followers>,
    /// Whether what follows may be leased at once.
    leads: bool,
    /// Whether it waits to hear of a commit.
    settles: AtomicBool,
}

/// A workflow in memory that is leased, and how far it is with a turn.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) instance: Instance,
    /// The turn that is under way, and what it is made of.
    pub(crate) turn: Option<(Turn, Vec<Came>)>,
}

/// Why no more turns are made under a lease.
enum Stop {
    /// The workflow waits or has ended, or its next turn is anybody's.
    Done,
    /// Its code cannot go on as it is.
    Broken(TurnFailure),
    /// What it asks for is nothing that can be kept.
    Refused(Rejection),
    /// Something is wrong with what is stored, or with the way to it.
    Failed(Error),
    /// There is more to do, which is not done here.
    GivenBack,
    /// The lease has run out by this worker's clock.
    Over,
    /// What was asked was refused or came too late: the lease is not this worker's.
    Lost,
}

impl TurnAttempt {
    pub(crate) fn new(
        team: &Arc<Team>,
        next: NextTurn,
        followers: UnboundedSender<Followers>,
        leads: bool,
    ) -> Self {
        let NextTurn { granted: Granted { claimed, held }, begun } = next;
        let Claimed { task, input, leased_from } = claimed;
        let lease = Lease::new(team, task.fence(), leased_from, held);
        let (team, begun, settles) = (team.clone(), Mutex::new(begun), AtomicBool::new(false));
        Self { team, task, input, lease, begun, followers, leads, settles }
    }

    fn worker(&self) -> &Worker {
        &self.team.worker
    }

    /// Makes turns until the workflow waits.
    pub(crate) async fn run(self, home: &Handle, interrupting: Token) {
        let this = Arc::new(self);
        let mut turns = JoinSet::new();
        let makes = this.clone();
        turns.spawn_on(async move { makes.turns().await }, home);
        let stop = tokio::select! {
            biased;
            Some(ended) = turns.join_next() => ended.unwrap_or(Stop::Lost),
            ending = this.lease.keep() => {
                let answered = match ending {
                    Ending::Over => None,
                    Ending::Near | Ending::Lost(_) => this.answered(&mut turns).await,
                };
                let stop = answered.unwrap_or(match ending {
                    Ending::Near if Instant::now() < this.lease.deadline() => Stop::GivenBack,
                    Ending::Near | Ending::Over => Stop::Over,
                    Ending::Lost(_) => Stop::Lost,
                });
                turns.shutdown().await;
                stop
            }
            () = interrupting.cancelled() => {
                turns.shutdown().await;
                Stop::GivenBack
            }
        };
        this.conclude(stop).await;
    }

    /// A lease that is lost, or near its end, while its settle is under way may end with that: the
    /// answer says so, and what it has leased.
    async fn answered(&self, turns: &mut JoinSet<Stop>) -> Option<Stop> {
        if !self.settles.load(Ordering::Relaxed) {
            return None;
        }
        let answered = timeout_at(self.lease.deadline() + PATIENCE, turns.join_next()).await;
        answered.ok().flatten().and_then(Result::ok)
    }

    async fn conclude(&self, stop: Stop) {
        let task = &self.task.id;
        match stop {
            Stop::Done | Stop::Lost => {}
            Stop::Broken(failure) => {
                tracing::error!(%task, kind = %self.task.kind, %failure, "a workflow cannot go on");
                self.put_off(BROKEN, &failure.to_string()).await;
            }
            Stop::Refused(refusal) => {
                tracing::error!(%task, kind = %self.task.kind, %refusal, "a turn is refused");
                self.put_off(BROKEN, &format!("its turn is refused: {refusal}")).await;
            }
            Stop::Failed(error) if is_of_what_is_stored(&error) => {
                tracing::error!(%task, %error, "what is stored of a workflow cannot be read");
                self.fail_for_now(&error.to_string()).await;
            }
            Stop::Failed(error) => {
                tracing::warn!(%task, %error, "a turn is given back");
                self.release().await;
            }
            Stop::GivenBack => self.release().await,
            Stop::Over => self.lease.give_up().await,
        }
    }

    async fn release(&self) {
        // Whatever came of it, the lease is over soon.
        let _ = self.lease.settle(Release { fence: self.lease.fence() }.into()).await;
    }

    /// Says what is wrong, where people look.
    async fn tell(&self, reason: &str) {
        let message = told(reason);
        let report = ReportProgress { fence: self.lease.fence(), percent: 0, message };
        if let Err(error) = self.worker().engine.submit(report).await {
            tracing::debug!(%error, "what is wrong with a workflow could not be told");
        }
    }

    /// Says why, and leaves the workflow alone for a while.
    async fn put_off(&self, pause: Duration, reason: &str) {
        self.tell(reason).await;
        let fence = self.lease.fence();
        let delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        // Whatever came of it, the lease is over soon.
        let _ = self.lease.settle(Delay { fence, delay_ms }.into()).await;
    }

    /// Says why, and counts: what is damaged is tried again for some hours, further and further
    /// apart, and then it is given up, so that nobody looks at it for ever.
    async fn fail_for_now(&self, reason: &str) {
        self.tell(reason).await;
        let fence = self.lease.fence();
        let doublings = self.task.attempts.saturating_sub(1).min(7);
        let ms = u64::try_from(BROKEN.as_millis()).unwrap_or(u64::MAX) << doublings;
        let (class, retry) = (FailureClass::Crash, Retry::After { ms });
        let reason = told(reason);
        let fail = Fail { fence, class, reason, retry };
        // Whatever came of it, the lease is over soon.
        let _ = self.lease.settle(fail.into()).await;
    }

    async fn turns(&self) -> Stop {
        let Some(mut at) = Position::of(&self.task) else { return Stop::Lost };
        at.epoch = self.lease.fence().epoch;
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut instance, mut begun) = match begun {
            Some(begun) => (begun.instance, begun.turn),
            None => match self.instance().await {
                Ok(instance) => (instance, None),
                Err(stop) => return stop,
            },
        };
        instance.set_attempt(self.task.reclaims.saturating_add(1));
        let (mut task, mut now) = (self.task.clone(), self.claimed_at());
        let mut locals = JoinSet::new();
        loop {
            let (turn, came) = match begun.take() {
                Some((turn, came)) => (Ok(turn), came),
                None => match self.came(&task).await {
                    Ok(came) => {
                        let arrivals = came.iter().map(|came| came.arrival.clone()).collect();
                        (instance.turn(now, arrivals), came)
                    }
                    Err(error) => return Stop::Failed(error),
                },
            };
            let finished = match self.finish(&mut instance, turn, &mut locals).await {
                Ok(finished) => finished,
                Err(failure) => return Stop::Broken(failure),
            };
            match self.keep(instance, finished, &came, &mut at).await {
                Ok(Some(more)) => task = more,
                Ok(None) => return Stop::Done,
                Err(stop) => return stop,
            }
            now = now.max(self.worker().engine.now());
            match self.worker().cache.take_at(&task.task_key(), at) {
                Some(kept) => instance = kept,
                // There are more of them than fit into memory: its next turn replays it.
                None => return Stop::GivenBack,
            }
        }
    }

    /// Commits a turn. Between its turns the workflow is in memory, for whoever makes the next:
    /// that may be before this one hears of its commit. Gives the workflow if the lease stays.
    async fn keep(
        &self,
        instance: Instance,
        finished: Finished,
        came: &[Came],
        at: &mut Position,
    ) -> Result<Option<Arc<Task>>, Stop> {
        let starts_over = finished.standing.starts_over();
        let values = if starts_over { instance.values() } else { BTreeMap::new() };
        let next_step = instance.next_step();
        let (key, cache) = (self.task.task_key(), &self.worker().cache);
        let after = at.after(finished.parts.len());
        if !finished.standing.has_ended() {
            cache.keep(key.clone(), after, instance);
        }
        let kept = self.commit(finished, values, came, at.turns, next_step).await;
        *at = after;
        kept.inspect_err(|_| drop(cache.take_at(&key, after)))
    }

    /// The workflow as live code: from memory, or from its history.
    async fn instance(&self) -> Result<Instance, Stop> {
        let Some(program) = self.worker().programs.of(&self.task) else {
            let kind = &self.task.kind;
            tracing::warn!(task = %self.task.id, %kind, "a workflow without code here is put off");
            self.put_off(UNKNOWN, &format!("a worker has no code for {kind}")).await;
            return Err(Stop::Done);
        };
        if let Some(instance) = self.worker().cache.take(&self.task) {
            return Ok(instance);
        }
        let begin = begin(&self.worker().engine, &self.task, &self.input).await;
        let begin = begin.map_err(Stop::Failed)?;
        let history = self.worker().engine.history(&self.task, 0).await.map_err(Stop::Failed)?;
        let mut instance = Instance::begin(program, begin);
        for row in &history {
            instance.replay(row).map_err(|found| Stop::Broken(found.into()))?;
        }
        Ok(instance)
    }

    /// What has come, asked for until the lease is over.
    async fn came(&self, task: &Task) -> Result<Vec<Came>, Error> {
        let mut pause = Pause::default();
        loop {
            match self.worker().engine.came(task).await {
                Err(error) if may_pass(&error) && Instant::now() < self.lease.deadline() => {
                    tracing::warn!(task = %task.id, %error, "reading what came failed");
                    sleep(pause.next()).await;
                }
                came => return came,
            }
        }
    }

    /// Brings a turn of the code to its end, with the local activities that it asks for. Those that
    /// run on are for the next turn, if there are any that did not fit.
    async fn finish(
        &self,
        instance: &mut Instance,
        turn: Result<Turn, TurnFailure>,
        locals: &mut JoinSet<Arrival>,
    ) -> Result<Finished, TurnFailure> {
        let mut turn = turn?;
        loop {
            match turn {
                Turn::Finished(finished) => {
                    if !finished.goes_on {
                        // What runs on is nobody's.
                        *locals = JoinSet::new();
                    }
                    return Ok(finished);
                }
                Turn::Local(work) => {
                    for local in work {
                        let calls = TurnCalls::lend(&self.worker().engine, self.lease.fence());
                        locals.spawn(local.with_calls(calls));
                    }
                    let Some(Ok(arrival)) = locals.join_next().await else {
                        return Err(TurnFailure::ForeignAwait);
                    };
                    turn = instance.resume(vec![arrival])?;
                }
            }
        }
    }

    /// Commits a turn, part by part.
    async fn commit(
        &self,
        finished: Finished,
        values: BTreeMap<String, Carried>,
        came: &[Came],
        mut row: u32,
        next_step: u64,
    ) -> Result<Option<Arc<Task>>, Stop> {
        let Finished { parts, told, standing, goes_on: has_more } = finished;
        let mut taken: Vec<u64> = came[..told.min(came.len())].iter().map(|c| c.seq).collect();
        let then =
            if has_more { Then::GoOn } else { then(standing, values).map_err(Stop::Failed)? };
        // Somebody may have woken it without a word: then there is nothing to remember.
        let mut parts: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
        let last = if parts.is_empty() { None } else { parts.pop().flatten() };
        let fence = self.lease.fence();
        for part in parts {
            let (fence, taken) = (fence.clone(), std::mem::take(&mut taken));
            let then = Then::GoOn;
            self.commit_part(Draft { fence, turn: row, part, taken, next_step, then }).await?;
            row += 1;
        }
        self.commit_part(Draft { fence, turn: row, part: last, taken, next_step, then }).await
    }

    async fn commit_part(&self, draft: Draft) -> Result<Option<Arc<Task>>, Stop> {
        let drafted = draft.command(&self.team, self.leads);
        let (commit, mut room) = drafted.map_err(Stop::Failed)?;
        let after = Position {
            turns: commit.turn + u32::from(commit.row.is_some()),
            generation: self.task.generation,
            epoch: commit.fence.epoch,
        };
        self.settles.store(true, Ordering::Relaxed);
        let settled = self.lease.settle_timed(commit.into()).await;
        self.settles.store(false, Ordering::Relaxed);
        match settled {
            Ok((Outcome::Turned { claimed, goes_on }, began)) => {
                if goes_on.is_none() {
                    self.worker().cache.settled(&self.task.task_key(), after);
                }
                if let Some(followers) = room.filled(claimed, began) {
                    // Whoever started this turn listens until it is over.
                    let _ = self.followers.send(followers);
                }
                Ok(goes_on)
            }
            Ok((other, _)) => unreachable!("a turn is answered as a turn, not {other:?}"),
            Err(Answer::Refused(Error::Rejected(refusal @ Rejection::Invalid { .. }))) => {
                Err(Stop::Refused(refusal))
            }
            Err(answer) => {
                tracing::warn!(task = %self.task.id, %answer, "a turn could not be kept");
                Err(Stop::Lost)
            }
        }
    }

    /// When the lease was given, by the clock of the store.
    fn claimed_at(&self) -> Timestamp {
        match &self.task.lifecycle {
            Lifecycle::Active(lease) => lease.expires_at.minus_ms(self.worker().claim.lease_ms),
            _ => self.worker().engine.now(),
        }
    }
}

/// As much of a reason as people are told.
fn told(reason: &str) -> String {
    reason.chars().take(256).collect()
}

/// Whether trying again does not help before somebody has mended something.
fn is_of_what_is_stored(error: &Error) -> bool {
    use Error::{BadHistory, BadMessage, NoHistory, NoPayload, Payload};
    let is_lost = matches!(error, NoHistory { .. } | NoPayload { .. });
    is_lost || matches!(error, Payload(_) | BadHistory { .. } | BadMessage { .. })
}
