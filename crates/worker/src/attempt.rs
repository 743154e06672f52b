use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument as _;
use windlass_core::{Command, Outcome, Payload, PayloadKey, Settled, TaskKey};
use windlass_engine::{ClaimedTask, Engine, TaskInput};

use crate::attempt_report::{AttemptReport, SettleRequest, SettleResult};
use crate::cancellation_token::CancellationToken;
use crate::context::{Context, Waits};
use crate::failure::Failure;
use crate::handler::Handled;
use crate::lease::{Granted, Lease, LeaseEnd};
use crate::retry_delay::RetryDelay;
use crate::speculative_turn::{SpeculativeOutcome, SpeculativeTurn};
use crate::turn_attempt::TurnInProgress;
use crate::turn_commit::EagerActivities;
use crate::worker_state::WorkerState;

/// How long a task of an unknown kind is snoozed.
const UNKNOWN_KIND_DELAY: Duration = Duration::from_secs(10);

/// The request at the end of an attempt, if any, and the response.
type Settlement = (Option<SettleRequest>, SettleResult);

/// An attempt of a task: the runs of its handler under one lease.
#[derive(Debug)]
pub(crate) struct Attempt {
    state: Arc<WorkerState>,
    claimed: ClaimedTask,
    lease: Arc<Lease>,
    token: CancellationToken,
    waits: Arc<Waits>,
    /// Whether follow-up work may be leased without a claim.
    may_chain: bool,
    /// The speculative turn that was run with the result.
    speculative: Arc<Mutex<Option<SpeculativeTurn>>>,
    continuation: Mutex<Option<Continuation>>,
}

/// The follow-up work of an attempt, leased by its commit.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    /// The eager activities of the speculative turn.
    pub(crate) eager_activities: Option<EagerActivities>,
    pub(crate) turn: Option<NextTurn>,
}

/// A leased workflow.
#[derive(Debug)]
pub(crate) struct NextTurn {
    pub(crate) granted: Granted,
    pub(crate) in_progress: Option<Box<TurnInProgress>>,
}

impl Attempt {
    pub(crate) fn new(state: &Arc<WorkerState>, granted: Granted, may_chain: bool) -> Self {
        let Granted { claimed, held } = granted;
        let lease = Lease::new(state, claimed.task.fence(), claimed.leased_from, held);
        let lease = Arc::new(lease);
        let waits = Arc::new(Waits::of(&claimed.task));
        let (token, continuation, speculative) =
            (CancellationToken::default(), Mutex::default(), Arc::default());
        Self {
            state: state.clone(),
            claimed,
            lease,
            token,
            waits,
            may_chain,
            speculative,
            continuation,
        }
    }

    /// Runs the attempt and reports its outcome. Returns the follow-up work.
    pub(crate) async fn run(
        self,
        runtime: &Handle,
        interrupting: CancellationToken,
    ) -> Continuation {
        let began = Instant::now();
        let (request, result) = self.run_until_settled(runtime, interrupting).await;
        let task = &self.claimed.task;
        self.state.worker.listener.call(&AttemptReport {
            fence: self.lease.fence(),
            kind: task.kind.clone(),
            lane: task.lane.clone(),
            attempt: task.attempts,
            request,
            result,
            elapsed: began.elapsed(),
        });
        self.continuation.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
    }

    /// The workflow that this is a step of, if this worker may have it cached.
    fn workflow(&self) -> Option<TaskKey> {
        let task = &self.claimed.task;
        let workflow = task.step.and(task.parent.as_ref());
        let workflow = workflow.filter(|_| !self.state.worker.definitions.is_empty())?;
        Some(TaskKey::new(&task.tenant, workflow))
    }

    /// Settles without follow-up work. A draining worker clears its sticky assignment in the same
    /// commit, so that the workflow does not wait for it.
    async fn settle_alone(&self, command: Command) -> Result<Outcome, SettleResult> {
        let Some(workflow) = self.workflow().filter(|_| self.state.is_closing()) else {
            return self.lease.settle(command).await;
        };
        let clear_sticky = self.state.worker.clear_sticky(vec![workflow.id]);
        self.lease.settle_with(command, clear_sticky.into()).await.map(|settled| settled.first)
    }

    /// Settles, and leases the workflow of this step in the same commit.
    async fn settle_and_follow(&self, command: Command) -> Result<Outcome, SettleResult> {
        let Some(workflow) = self.workflow().filter(|_| !self.state.is_closing()) else {
            return self.settle_alone(command).await;
        };
        let mut unfinished = None;
        let speculative = self.speculative.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(speculative), Command::Complete(complete)) = (speculative, &command) {
            match speculative
                .commit(&self.state, &self.lease, complete.clone(), self.may_chain)
                .await?
            {
                SpeculativeOutcome::Committed { eager_activities, turn } => {
                    self.set_continuation(Continuation { eager_activities, turn });
                    return Ok(Outcome::Settled(Settled::Completed));
                }
                SpeculativeOutcome::Unfinished(speculative) => unfinished = Some(speculative),
                SpeculativeOutcome::Rejected => {}
            }
        }
        let request = self.state.worker.leases.request();
        let consume = self.state.worker.claim_granted(workflow, &request);
        let settled = self.lease.settle_with(command, consume.into()).await?;
        if let Some(Ok(Outcome::Claimed(mut claimed))) = settled.second
            && let Some(task) = claimed.pop()
        {
            let in_progress = unfinished.and_then(|speculative| speculative.continue_under(&task));
            let granted = Granted::workflow(task, settled.batch_began, &request);
            self.set_continuation(Continuation {
                eager_activities: None,
                turn: Some(NextTurn { granted, in_progress }),
            });
        }
        Ok(settled.first)
    }

    fn set_continuation(&self, continuation: Continuation) {
        *self.continuation.lock().unwrap_or_else(PoisonError::into_inner) = Some(continuation);
    }

    /// Runs the handler until it ends, the lease is lost, or `interrupting` requests a release.
    async fn run_until_settled(
        &self,
        runtime: &Handle,
        interrupting: CancellationToken,
    ) -> Settlement {
        let task = &self.claimed.task;
        if Instant::now() >= self.lease.deadline() {
            tracing::warn!(task = %task.id, "lease expired before the claim returned");
            self.lease.abandon().await;
            return (None, SettleResult::LeaseExpired);
        }
        if !self.state.worker.handlers.contains_key(&task.kind) {
            return self.snooze().await;
        }
        loop {
            if let Some(settlement) = self.run_handler(runtime, &interrupting).await {
                return settlement;
            }
        }
    }

    /// Runs the handler once. None if it waits for children that have all ended by then: it runs
    /// again at once, under the same lease.
    async fn run_handler(
        &self,
        runtime: &Handle,
        interrupting: &CancellationToken,
    ) -> Option<Settlement> {
        let task = &self.claimed.task;
        tracing::debug!(task = %task.id, epoch = task.epoch, "attempt started");
        // Dropping the set aborts the handler, so that it does not outlive this attempt.
        let mut handler = JoinSet::new();
        let workflow = task.step.and(task.parent.as_ref()).map(tracing::field::display);
        let span = tracing::info_span!(
            "attempt", task = %task.id, kind = %task.kind, attempt = task.attempts, workflow
        );
        handler.spawn_on(self.handle().instrument(span), runtime);
        let settlement = tokio::select! {
            biased;
            Some(ended) = handler.join_next() => return self.finish(ended).await,
            ending = self.lease.renew_until_end() => match ending {
                LeaseEnd::Expiring => self.stop_and_release(&mut handler).await,
                LeaseEnd::Expired => {
                    self.stop(&mut handler).await;
                    self.lease.abandon().await;
                    (None, SettleResult::LeaseExpired)
                }
                LeaseEnd::Revoked(rejection) => match self.stop(&mut handler).await {
                    Some(Ok(Err(failure))) if failure.is_suspended() => {
                        (Some(SettleRequest::Suspend), SettleResult::Settled)
                    }
                    _ => (None, SettleResult::Lost(rejection)),
                },
            },
            () = interrupting.cancelled() => self.stop_and_release(&mut handler).await,
        };
        Some(settlement)
    }

    fn handle(&self) -> impl Future<Output = Handled> + Send + 'static {
        let (state, claimed, speculative) =
            (self.state.clone(), self.claimed.clone(), self.speculative.clone());
        let (token, deadline) = (self.token.clone(), self.lease.watch());
        let (until, waits) = (self.lease.deadline(), self.waits.clone());
        async move {
            // A handler may block its thread. Yield first to tasks queued on that thread: if the
            // engine shares this runtime, one of them may be a heartbeat.
            tokio::task::yield_now().await;
            let ClaimedTask { task, input, .. } = claimed;
            let worker = &state.worker;
            let handler =
                worker.handlers.get(&task.kind).expect("run_until_settled checks that it exists");
            let payload = match input {
                TaskInput::None => None,
                TaskInput::Inline(payload) => Some(payload),
                TaskInput::ByKey(key) => Some(fetch(&worker.engine, &key, until).await?),
            };
            let engine = worker.engine.clone();
            let context = Context::new(engine, task.clone(), payload, token, deadline, waits);
            let handled = handler.call(context).await;
            // User code runs on this runtime, also that of workflows.
            if let Some(turn) = SpeculativeTurn::run(&state, &task, &handled) {
                *speculative.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
            }
            handled
        }
    }

    async fn finish(&self, ended: Result<Handled, JoinError>) -> Option<Settlement> {
        let handled = match ended {
            Ok(handled) => handled,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Err(Failure::transient(panic_reason(&*panic))),
                // The runtime is shutting down: nothing can be settled.
                Err(_) => return Some((None, SettleResult::LeaseExpired)),
            },
        };
        let request = SettleRequest::by(handled);
        let Some(command) = request.command(self.lease.fence()) else {
            return Some((Some(request), SettleResult::Settled));
        };
        match self.settle_and_follow(command).await {
            Ok(Outcome::ChildrenDone(_)) => None,
            Ok(_) => Some((Some(request), SettleResult::Settled)),
            Err(result) => Some((Some(request), result)),
        }
    }

    async fn settle(&self, request: SettleRequest) -> Settlement {
        let settled = match request.command(self.lease.fence()) {
            Some(command) => self.settle_alone(command).await.err(),
            None => None,
        };
        (Some(request), settled.unwrap_or(SettleResult::Settled))
    }

    /// Snoozes a task, so that a worker with a handler for its kind can claim it.
    async fn snooze(&self) -> Settlement {
        let (task, kind) = (&self.claimed.task.id, &self.claimed.task.kind);
        tracing::warn!(%task, %kind, "no handler for this kind: task snoozed");
        let reason = format!("this worker has no handler for {kind}");
        self.settle(SettleRequest::Snooze { delay: UNKNOWN_KIND_DELAY, reason }).await
    }

    /// Stops the handler and releases its task. A result that it returns by then is committed.
    async fn stop_and_release(&self, handler: &mut JoinSet<Handled>) -> Settlement {
        match timeout_at(self.lease.deadline(), self.stop(handler)).await {
            Ok(Some(Ok(Ok(result)))) => self.settle(SettleRequest::Complete(result)).await,
            Ok(Some(Ok(Err(failure)))) if failure.is_suspended() => {
                self.settle(SettleRequest::Suspend).await
            }
            Ok(_) => self.settle(SettleRequest::Release).await,
            // A handler that blocks its thread may still act: its lease is held until it ends.
            Err(_) => {
                let task = &self.claimed.task.id;
                tracing::warn!(%task, "handler did not stop before its lease expired");
                let (mut handler, lease) = (std::mem::take(handler), self.lease.clone());
                tokio::spawn(async move {
                    handler.shutdown().await;
                    lease.abandon().await;
                });
                (None, SettleResult::LeaseExpired)
            }
        }
    }

    /// Cancels the handler, and drops it if it does not stop. Returns how it ended if it did.
    async fn stop(&self, handler: &mut JoinSet<Handled>) -> Option<Result<Handled, JoinError>> {
        self.token.cancel();
        let ended = timeout(self.lease.stop_grace(), handler.join_next()).await;
        handler.shutdown().await;
        ended.ok().flatten()
    }
}

/// Loads a payload that was too large for the claim. Retries until the first lease expires.
async fn fetch(engine: &Engine, key: &PayloadKey, until: Instant) -> Result<Payload, Failure> {
    let mut pause = RetryDelay::default();
    loop {
        let error = match timeout_at(until, engine.payload(key)).await {
            Ok(Ok(Some(payload))) => return Ok(payload),
            Ok(Ok(None)) => return Err(Failure::permanent("the payload is not in the store")),
            Ok(Err(error)) => error,
            Err(_) => return Err(Failure::transient("the payload could not be read in time")),
        };
        let pause = pause.next();
        if Instant::now() + pause >= until {
            return Err(Failure::transient(format!("the payload could not be read: {error}")));
        }
        tracing::warn!(task = %key.task, %error, "reading a payload failed and is retried");
        sleep(pause).await;
    }
}

fn panic_reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("without a message"))
}
