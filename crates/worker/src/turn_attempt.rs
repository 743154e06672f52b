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
use windlass_engine::{ClaimedTask, Error, PendingInput, TaskInput};

use crate::attempt::NextTurn;
use crate::attempt_report::SettleResult;
use crate::cancellation_token::CancellationToken;
use crate::lease::{Granted, Lease, LeaseEnd, is_retryable_under_lease};
use crate::recording::begin;
use crate::retry_delay::RetryDelay;
use crate::turn_commit::{EagerActivities, TurnCommit, turn_end};
use crate::turn_effects::TurnEffects;
use crate::worker::Worker;
use crate::worker_heartbeat::SHUTDOWN_TIMEOUT;
use crate::worker_state::WorkerState;
use crate::workflow::{CompletedTurn, Instance, TurnFailure, TurnPart, TurnProgress};
use crate::workflow_cache::Position;

/// How long a workflow is snoozed whose code is unknown here, or does not match its history.
const UNKNOWN_CODE_DELAY: Duration = Duration::from_secs(10);
const BROKEN_DELAY: Duration = Duration::from_secs(30);

/// One lease of a workflow, with one or more turns.
#[derive(Debug)]
pub(crate) struct TurnAttempt {
    state: Arc<WorkerState>,
    task: Arc<Task>,
    input: TaskInput,
    lease: Lease,
    in_progress: Mutex<Option<Box<TurnInProgress>>>,
    eager_activities: UnboundedSender<EagerActivities>,
    /// Whether eager activities may be leased.
    may_chain: bool,
    /// Whether a commit is in flight.
    is_settling: AtomicBool,
}

/// A leased workflow in memory, and its turn in progress.
#[derive(Debug)]
pub(crate) struct TurnInProgress {
    pub(crate) instance: Instance,
    /// The turn in progress, and its inputs.
    pub(crate) turn: Option<(TurnProgress, Vec<PendingInput>)>,
}

/// Why the turns under a lease have ended.
enum TurnStop {
    /// The workflow waits or has ended, or any worker may claim its next turn.
    Done,
    /// Its code failed the turn, or does not match the history.
    Broken(TurnFailure),
    /// The commit was rejected as invalid.
    Rejected(Rejection),
    /// Stored data is damaged, or reading it failed.
    Failed(Error),
    /// There is more to do, which is left to another lease.
    Release,
    /// The lease has expired by this worker's clock.
    LeaseExpired,
    /// The commit was rejected or too late: this worker does not hold the lease.
    Lost,
}

impl TurnAttempt {
    pub(crate) fn new(
        state: &Arc<WorkerState>,
        next: NextTurn,
        eager_activities: UnboundedSender<EagerActivities>,
        may_chain: bool,
    ) -> Self {
        let NextTurn { granted: Granted { claimed, held }, in_progress } = next;
        let ClaimedTask { task, input, leased_from } = claimed;
        let lease = Lease::new(state, task.fence(), leased_from, held);
        let (state, in_progress, is_settling) =
            (state.clone(), Mutex::new(in_progress), AtomicBool::new(false));
        Self { state, task, input, lease, in_progress, eager_activities, may_chain, is_settling }
    }

    fn worker(&self) -> &Worker {
        &self.state.worker
    }

    /// Runs turns until the workflow waits.
    pub(crate) async fn run(self, runtime: &Handle, interrupting: CancellationToken) {
        let this = Arc::new(self);
        let mut turns = JoinSet::new();
        let attempt = this.clone();
        turns.spawn_on(async move { attempt.turns().await }, runtime);
        let stop = tokio::select! {
            biased;
            Some(ended) = turns.join_next() => ended.unwrap_or(TurnStop::Lost),
            ending = this.lease.renew_until_end() => {
                let settled = match ending {
                    LeaseEnd::Expired => None,
                    LeaseEnd::Expiring | LeaseEnd::Revoked(_) => {
                        this.await_settle(&mut turns).await
                    }
                };
                let stop = settled.unwrap_or(match ending {
                    LeaseEnd::Expiring if Instant::now() < this.lease.deadline() => {
                        TurnStop::Release
                    }
                    LeaseEnd::Expiring | LeaseEnd::Expired => TurnStop::LeaseExpired,
                    LeaseEnd::Revoked(_) => TurnStop::Lost,
                });
                turns.shutdown().await;
                stop
            }
            () = interrupting.cancelled() => {
                turns.shutdown().await;
                TurnStop::Release
            }
        };
        this.finish_lease(stop).await;
    }

    /// A lease that is lost or near expiry while a settle is in flight may have been ended by that
    /// settle. Its response shows that, and has the leases that it granted.
    async fn await_settle(&self, turns: &mut JoinSet<TurnStop>) -> Option<TurnStop> {
        if !self.is_settling.load(Ordering::Relaxed) {
            return None;
        }
        let settled = timeout_at(self.lease.deadline() + SHUTDOWN_TIMEOUT, turns.join_next()).await;
        settled.ok().flatten().and_then(Result::ok)
    }

    async fn finish_lease(&self, stop: TurnStop) {
        let task = &self.task.id;
        match stop {
            TurnStop::Done | TurnStop::Lost => {}
            TurnStop::Broken(failure) => {
                tracing::error!(%task, kind = %self.task.kind, %failure, "workflow turn failed");
                self.snooze(BROKEN_DELAY, &failure.to_string()).await;
            }
            TurnStop::Rejected(rejection) => {
                let kind = &self.task.kind;
                tracing::error!(%task, %kind, %rejection, "workflow turn rejected");
                self.snooze(BROKEN_DELAY, &format!("turn rejected: {rejection}")).await;
            }
            TurnStop::Failed(error) if is_damaged_data(&error) => {
                tracing::error!(%task, %error, "stored data of a workflow is missing or damaged");
                self.fail_attempt(&error.to_string()).await;
            }
            TurnStop::Failed(error) => {
                tracing::warn!(%task, %error, "workflow turn failed: lease released");
                self.release().await;
            }
            TurnStop::Release => self.release().await,
            TurnStop::LeaseExpired => self.lease.abandon().await,
        }
    }

    async fn release(&self) {
        // If this fails, the lease expires soon.
        let _ = self.lease.settle(Release { fence: self.lease.fence() }.into()).await;
    }

    /// Reports what is wrong as the progress of the task.
    async fn report_reason(&self, reason: &str) {
        let message = truncated(reason);
        let report = ReportProgress { fence: self.lease.fence(), percent: 0, message };
        if let Err(error) = self.worker().engine.submit(report).await {
            tracing::debug!(%error, "reporting the progress of a workflow failed");
        }
    }

    /// Reports the reason and snoozes the workflow.
    async fn snooze(&self, pause: Duration, reason: &str) {
        self.report_reason(reason).await;
        let fence = self.lease.fence();
        let delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        // If this fails, the lease expires soon.
        let _ = self.lease.settle(Snooze { fence, delay_ms }.into()).await;
    }

    /// Reports the reason and fails the attempt. A damaged workflow is retried with backoff for
    /// some hours, and then fails for good, so that it does not occupy workers forever.
    async fn fail_attempt(&self, reason: &str) {
        self.report_reason(reason).await;
        let fence = self.lease.fence();
        let doublings = self.task.attempts.saturating_sub(1).min(7);
        let ms = u64::try_from(BROKEN_DELAY.as_millis()).unwrap_or(u64::MAX) << doublings;
        let (class, retry) = (FailureClass::Crash, Retry::After { ms });
        let reason = truncated(reason);
        let fail = Fail { fence, class, reason, retry };
        // If this fails, the lease expires soon.
        let _ = self.lease.settle(fail.into()).await;
    }

    async fn turns(&self) -> TurnStop {
        let Some(mut at) = Position::of(&self.task) else { return TurnStop::Lost };
        at.epoch = self.lease.fence().epoch;
        let in_progress = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut instance, mut in_progress) = match in_progress {
            Some(started) => (started.instance, started.turn),
            None => match self.instance().await {
                Ok(instance) => (instance, None),
                Err(stop) => return stop,
            },
        };
        instance.set_attempt(self.task.lost_leases.saturating_add(1));
        let (mut task, mut now) = (self.task.clone(), self.claimed_at());
        let mut locals = JoinSet::new();
        loop {
            let (turn, inputs) = match in_progress.take() {
                Some((turn, inputs)) => (Ok(turn), inputs),
                None => match self.pending_inputs(&task).await {
                    Ok(pending) => {
                        let inputs = pending.iter().map(|pending| pending.input.clone()).collect();
                        (instance.turn(now, inputs), pending)
                    }
                    Err(error) => return TurnStop::Failed(error),
                },
            };
            let finished = match self.finish(&mut instance, turn, &mut locals).await {
                Ok(finished) => finished,
                Err(failure) => return TurnStop::Broken(failure),
            };
            match self.cache_and_commit(instance, finished, &inputs, &mut at).await {
                Ok(Some(more)) => task = more,
                Ok(None) => return TurnStop::Done,
                Err(stop) => return stop,
            }
            now = now.max(self.worker().engine.now());
            match self.worker().cache.take_at(&task.task_key(), at) {
                Some(cached) => instance = cached,
                // It was evicted from the cache: its next turn replays it.
                None => return TurnStop::Release,
            }
        }
    }

    /// Commits a turn. The workflow is cached before the commit: another attempt may run its next
    /// turn before this one has the response. Returns the workflow if its lease continues.
    async fn cache_and_commit(
        &self,
        instance: Instance,
        finished: CompletedTurn,
        inputs: &[PendingInput],
        at: &mut Position,
    ) -> Result<Option<Arc<Task>>, TurnStop> {
        let continues_as_new = finished.state.continues_as_new();
        let values = if continues_as_new { instance.values() } else { BTreeMap::new() };
        let next_step = instance.next_step();
        let (key, cache) = (self.task.task_key(), &self.worker().cache);
        let after = at.after(finished.parts.len());
        if !finished.state.has_ended() {
            cache.insert(key.clone(), after, instance);
        }
        let committed = self.commit(finished, values, inputs, at.turns, next_step).await;
        *at = after;
        committed.inspect_err(|_| drop(cache.take_at(&key, after)))
    }

    /// The workflow as live code: from the cache, or replayed from its history.
    async fn instance(&self) -> Result<Instance, TurnStop> {
        let Some(definition) = self.worker().definitions.of(&self.task) else {
            let kind = &self.task.kind;
            tracing::warn!(task = %self.task.id, %kind, "no code for a workflow: snoozed");
            self.snooze(UNKNOWN_CODE_DELAY, &format!("this worker has no code for {kind}")).await;
            return Err(TurnStop::Done);
        };
        if let Some(instance) = self.worker().cache.take(&self.task) {
            return Ok(instance);
        }
        let start = begin(&self.worker().engine, &self.task, &self.input).await;
        let start = start.map_err(TurnStop::Failed)?;
        let history =
            self.worker().engine.history(&self.task, 0).await.map_err(TurnStop::Failed)?;
        let mut instance = Instance::begin(definition, start);
        for row in &history {
            instance.replay(row).map_err(|found| TurnStop::Broken(found.into()))?;
        }
        Ok(instance)
    }

    /// Reads the pending inputs. Retries until the lease expires.
    async fn pending_inputs(&self, task: &Task) -> Result<Vec<PendingInput>, Error> {
        let mut pause = RetryDelay::default();
        loop {
            match self.worker().engine.pending_inputs(task).await {
                Err(error)
                    if is_retryable_under_lease(&error)
                        && Instant::now() < self.lease.deadline() =>
                {
                    tracing::warn!(task = %task.id, %error, "mailbox read failed and is retried");
                    sleep(pause.next()).await;
                }
                inputs => return inputs,
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
                        let effects =
                            TurnEffects::access(&self.worker().engine, self.lease.fence());
                        locals.spawn(local.with_effect_access(effects));
                    }
                    let Some(Ok(input)) = locals.join_next().await else {
                        return Err(TurnFailure::NonWorkflowAwait);
                    };
                    turn = instance.resume(vec![input])?;
                }
            }
        }
    }

    /// Commits a turn, part by part.
    async fn commit(
        &self,
        finished: CompletedTurn,
        values: BTreeMap<String, HistoryPayload>,
        inputs: &[PendingInput],
        mut row: u32,
        next_step: u64,
    ) -> Result<Option<Arc<Task>>, TurnStop> {
        let CompletedTurn { parts, delivered, state, has_more } = finished;
        let mut consumed: Vec<u64> =
            inputs[..delivered.min(inputs.len())].iter().map(|c| c.seq).collect();
        let end = if has_more {
            TurnEnd::MoreParts
        } else {
            turn_end(state, values).map_err(TurnStop::Failed)?
        };
        // A wake without inputs has no parts: it is committed without a row.
        let mut parts: Vec<Option<TurnPart>> = parts.into_iter().map(Some).collect();
        let last = if parts.is_empty() { None } else { parts.pop().flatten() };
        let fence = self.lease.fence();
        for part in parts {
            let (fence, consumed) = (fence.clone(), std::mem::take(&mut consumed));
            let end = TurnEnd::MoreParts;
            self.commit_part(TurnCommit { fence, turn: row, part, consumed, next_step, end })
                .await?;
            row += 1;
        }
        self.commit_part(TurnCommit { fence, turn: row, part: last, consumed, next_step, end })
            .await
    }

    async fn commit_part(&self, commit: TurnCommit) -> Result<Option<Arc<Task>>, TurnStop> {
        let prepared = commit.command(&self.state, self.may_chain);
        let (commit, mut eager_slots) = prepared.map_err(TurnStop::Failed)?;
        let after = Position {
            turns: commit.turn + u32::from(commit.row.is_some()),
            execution: self.task.execution,
            epoch: commit.fence.epoch,
        };
        self.is_settling.store(true, Ordering::Relaxed);
        let settled = self.lease.settle_timed(commit.into()).await;
        self.is_settling.store(false, Ordering::Relaxed);
        match settled {
            Ok((Outcome::TurnCommitted { claimed, lease_kept }, began)) => {
                if lease_kept.is_none() {
                    self.worker().cache.settled(&self.task.task_key(), after);
                }
                if let Some(eager_activities) = eager_slots.filled(claimed, began) {
                    // The receiver is open until this attempt is over.
                    let _ = self.eager_activities.send(eager_activities);
                }
                Ok(lease_kept)
            }
            Ok((other, _)) => unreachable!("a turn is not settled with {other:?}"),
            Err(SettleResult::Rejected(Error::Rejected(rejection @ Rejection::Invalid { .. }))) => {
                Err(TurnStop::Rejected(rejection))
            }
            Err(error) => {
                tracing::warn!(task = %self.task.id, %error, "workflow turn commit failed");
                Err(TurnStop::Lost)
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
fn truncated(reason: &str) -> String {
    reason.chars().take(256).collect()
}

/// Whether stored data is missing or damaged, so that a retry fails until it is repaired.
fn is_damaged_data(error: &Error) -> bool {
    use Error::{HistoryMissing, HistoryUnreadable, MessageUnreadable, Payload, PayloadMissing};
    let is_lost = matches!(error, HistoryMissing { .. } | PayloadMissing { .. });
    is_lost || matches!(error, Payload(_) | HistoryUnreadable { .. } | MessageUnreadable { .. })
}
