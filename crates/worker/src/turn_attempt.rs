use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use windlass_core::command::{Fail, Release, ReportProgress, Snooze, TurnEnd};
use windlass_core::{
    FailureClass, HistoryPayload, Lifecycle, Outcome, Rejection, Retry, Task, Timestamp,
    WorkflowInput,
};
use windlass_engine::{Claimed, Error, Input, PendingInput};

use crate::attempt::NextTurn;
use crate::attempt_report::SettleResult;
use crate::cache::Position;
use crate::cancellation_token::CancellationToken;
use crate::commit::{EagerActivities, TurnCommit, then};
use crate::effect_calls::TurnCalls;
use crate::lease::{Granted, Lease, LeaseEnd, is_retryable};
use crate::recording::begin;
use crate::retry_delay::RetryDelay;
use crate::worker::Worker;
use crate::worker_heartbeat::PATIENCE;
use crate::worker_state::WorkerState;
use crate::workflow::{CompletedTurn, Instance, TurnFailure, TurnPart, TurnProgress};

/// How long a workflow is snoozed whose code is unknown here, or does not match its history.
const UNKNOWN: Duration = Duration::from_secs(10);
const BROKEN: Duration = Duration::from_secs(30);

/// One lease of a workflow, with one or more turns.
#[derive(Debug)]
pub(crate) struct TurnAttempt {
    team: Arc<WorkerState>,
    task: Arc<Task>,
    input: Input,
    lease: Lease,
    begun: Mutex<Option<Box<Begun>>>,
    followers: UnboundedSender<EagerActivities>,
    /// Whether eager activities may be leased.
    leads: bool,
    /// Whether a commit is in flight.
    settles: AtomicBool,
}

/// A leased workflow in memory, and its turn in progress.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) instance: Instance,
    /// The turn in progress, and its inputs.
    pub(crate) turn: Option<(TurnProgress, Vec<PendingInput>)>,
}

/// Why the turns under a lease have ended.
enum Stop {
    /// The workflow waits or has ended, or any worker may claim its next turn.
    Done,
    /// Its code failed the turn, or does not match the history.
    Broken(TurnFailure),
    /// The commit was rejected as invalid.
    Refused(Rejection),
    /// Stored data is damaged, or reading it failed.
    Failed(Error),
    /// There is more to do, which is left to another lease.
    GivenBack,
    /// The lease has expired by this worker's clock.
    Over,
    /// The commit was rejected or too late: this worker does not hold the lease.
    Lost,
}

impl TurnAttempt {
    pub(crate) fn new(
        team: &Arc<WorkerState>,
        next: NextTurn,
        followers: UnboundedSender<EagerActivities>,
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

    /// Runs turns until the workflow waits.
    pub(crate) async fn run(self, home: &Handle, interrupting: CancellationToken) {
        let this = Arc::new(self);
        let mut turns = JoinSet::new();
        let makes = this.clone();
        turns.spawn_on(async move { makes.turns().await }, home);
        let stop = tokio::select! {
            biased;
            Some(ended) = turns.join_next() => ended.unwrap_or(Stop::Lost),
            ending = this.lease.keep() => {
                let answered = match ending {
                    LeaseEnd::Expired => None,
                    LeaseEnd::Expiring | LeaseEnd::Revoked(_) => this.answered(&mut turns).await,
                };
                let stop = answered.unwrap_or(match ending {
                    LeaseEnd::Expiring if Instant::now() < this.lease.deadline() => Stop::GivenBack,
                    LeaseEnd::Expiring | LeaseEnd::Expired => Stop::Over,
                    LeaseEnd::Revoked(_) => Stop::Lost,
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

    /// A lease that is lost or near expiry while a settle is in flight may have been ended by that
    /// settle. Its response shows that, and has the leases that it granted.
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
                tracing::error!(%task, kind = %self.task.kind, %failure, "workflow turn failed");
                self.snooze(BROKEN, &failure.to_string()).await;
            }
            Stop::Refused(refusal) => {
                tracing::error!(%task, kind = %self.task.kind, %refusal, "workflow turn rejected");
                self.snooze(BROKEN, &format!("turn rejected: {refusal}")).await;
            }
            Stop::Failed(error) if is_of_what_is_stored(&error) => {
                tracing::error!(%task, %error, "stored data of a workflow cannot be read");
                self.fail_for_now(&error.to_string()).await;
            }
            Stop::Failed(error) => {
                tracing::warn!(%task, %error, "turn failed and is released");
                self.release().await;
            }
            Stop::GivenBack => self.release().await,
            Stop::Over => self.lease.give_up().await,
        }
    }

    async fn release(&self) {
        // If this fails, the lease expires soon.
        let _ = self.lease.settle(Release { fence: self.lease.fence() }.into()).await;
    }

    /// Reports what is wrong as the progress of the task.
    async fn tell(&self, reason: &str) {
        let message = told(reason);
        let report = ReportProgress { fence: self.lease.fence(), percent: 0, message };
        if let Err(error) = self.worker().engine.submit(report).await {
            tracing::debug!(%error, "reporting the failure of a workflow failed");
        }
    }

    /// Reports the reason and snoozes the workflow.
    async fn snooze(&self, pause: Duration, reason: &str) {
        self.tell(reason).await;
        let fence = self.lease.fence();
        let delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        // If this fails, the lease expires soon.
        let _ = self.lease.settle(Snooze { fence, delay_ms }.into()).await;
    }

    /// Reports the reason and fails the attempt. A damaged workflow is retried with backoff for
    /// some hours, and then fails for good, so that it does not occupy workers forever.
    async fn fail_for_now(&self, reason: &str) {
        self.tell(reason).await;
        let fence = self.lease.fence();
        let doublings = self.task.attempts.saturating_sub(1).min(7);
        let ms = u64::try_from(BROKEN.as_millis()).unwrap_or(u64::MAX) << doublings;
        let (class, retry) = (FailureClass::Crash, Retry::After { ms });
        let reason = told(reason);
        let fail = Fail { fence, class, reason, retry };
        // If this fails, the lease expires soon.
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
        instance.set_attempt(self.task.lost_leases.saturating_add(1));
        let (mut task, mut now) = (self.task.clone(), self.claimed_at());
        let mut locals = JoinSet::new();
        loop {
            let (turn, came) = match begun.take() {
                Some((turn, came)) => (Ok(turn), came),
                None => match self.pending_inputs(&task).await {
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
                // It was evicted from the cache: its next turn replays it.
                None => return Stop::GivenBack,
            }
        }
    }

    /// Commits a turn. The workflow is cached before the commit: another attempt may run its next
    /// turn before this one has the response. Returns the workflow if its lease continues.
    async fn keep(
        &self,
        instance: Instance,
        finished: CompletedTurn,
        came: &[PendingInput],
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

    /// The workflow as live code: from the cache, or replayed from its history.
    async fn instance(&self) -> Result<Instance, Stop> {
        let Some(program) = self.worker().programs.of(&self.task) else {
            let kind = &self.task.kind;
            tracing::warn!(task = %self.task.id, %kind, "workflow without code is snoozed");
            self.snooze(UNKNOWN, &format!("a worker has no code for {kind}")).await;
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

    /// Reads the pending inputs. Retries until the lease expires.
    async fn pending_inputs(&self, task: &Task) -> Result<Vec<PendingInput>, Error> {
        let mut pause = RetryDelay::default();
        loop {
            match self.worker().engine.pending_inputs(task).await {
                Err(error) if is_retryable(&error) && Instant::now() < self.lease.deadline() => {
                    tracing::warn!(task = %task.id, %error, "reading a mailbox failed");
                    sleep(pause.next()).await;
                }
                came => return came,
            }
        }
    }

    /// Runs a turn to its end, with its local activities. Those that still run when the row is full
    /// are left to the next turn.
    async fn finish(
        &self,
        instance: &mut Instance,
        turn: Result<TurnProgress, TurnFailure>,
        locals: &mut JoinSet<WorkflowInput>,
    ) -> Result<CompletedTurn, TurnFailure> {
        let mut turn = turn?;
        loop {
            match turn {
                TurnProgress::Finished(finished) => {
                    if !finished.has_more {
                        // No turn awaits those that still run.
                        *locals = JoinSet::new();
                    }
                    return Ok(finished);
                }
                TurnProgress::Local(work) => {
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
        finished: CompletedTurn,
        values: BTreeMap<String, HistoryPayload>,
        came: &[PendingInput],
        mut row: u32,
        next_step: u64,
    ) -> Result<Option<Arc<Task>>, Stop> {
        let CompletedTurn { parts, told, standing, has_more } = finished;
        let mut taken: Vec<u64> = came[..told.min(came.len())].iter().map(|c| c.seq).collect();
        let then = if has_more {
            TurnEnd::MoreParts
        } else {
            then(standing, values).map_err(Stop::Failed)?
        };
        // A wake without inputs has no parts: it is committed without a row.
        let mut parts: Vec<Option<TurnPart>> = parts.into_iter().map(Some).collect();
        let last = if parts.is_empty() { None } else { parts.pop().flatten() };
        let fence = self.lease.fence();
        for part in parts {
            let (fence, taken) = (fence.clone(), std::mem::take(&mut taken));
            let then = TurnEnd::MoreParts;
            self.commit_part(TurnCommit { fence, turn: row, part, taken, next_step, then }).await?;
            row += 1;
        }
        self.commit_part(TurnCommit { fence, turn: row, part: last, taken, next_step, then }).await
    }

    async fn commit_part(&self, draft: TurnCommit) -> Result<Option<Arc<Task>>, Stop> {
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
            Ok((Outcome::TurnCommitted { claimed, lease_kept }, began)) => {
                if lease_kept.is_none() {
                    self.worker().cache.settled(&self.task.task_key(), after);
                }
                if let Some(followers) = room.filled(claimed, began) {
                    // The receiver is open until this attempt is over.
                    let _ = self.followers.send(followers);
                }
                Ok(lease_kept)
            }
            Ok((other, _)) => unreachable!("a turn is not answered with {other:?}"),
            Err(SettleResult::Refused(Error::Rejected(refusal @ Rejection::Invalid { .. }))) => {
                Err(Stop::Refused(refusal))
            }
            Err(answer) => {
                tracing::warn!(task = %self.task.id, %answer, "turn commit failed");
                Err(Stop::Lost)
            }
        }
    }

    /// When the lease was granted, by the clock of the store.
    fn claimed_at(&self) -> Timestamp {
        match &self.task.lifecycle {
            Lifecycle::Active(lease) => lease.expires_at.minus_ms(self.worker().claim.lease_ms),
            _ => self.worker().engine.now(),
        }
    }
}

/// Truncates a reason to what is reported.
fn told(reason: &str) -> String {
    reason.chars().take(256).collect()
}

/// Whether stored data is missing or damaged, so that a retry fails until it is repaired.
fn is_of_what_is_stored(error: &Error) -> bool {
    use Error::{BadHistory, BadMessage, NoHistory, NoPayload, Payload};
    let is_lost = matches!(error, NoHistory { .. } | NoPayload { .. });
    is_lost || matches!(error, Payload(_) | BadHistory { .. } | BadMessage { .. })
}
