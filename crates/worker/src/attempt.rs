use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument as _;
use windlass_core::{Command, Outcome, Payload, PayloadKey, Settled, TaskKey};
use windlass_engine::{Claimed, Engine, Input};

use crate::attempt_report::{AttemptReport, SettleRequest, SettleResult};
use crate::cancellation_token::CancellationToken;
use crate::commit::EagerActivities;
use crate::context::{Context, Waits};
use crate::failure::Failure;
use crate::handler::Handled;
use crate::lease::{Granted, Lease, LeaseEnd};
use crate::retry_delay::RetryDelay;
use crate::speculative_turn::{SpeculativeOutcome, SpeculativeTurn};
use crate::turn::Begun;
use crate::worker_state::WorkerState;

/// How long a task of an unknown kind is snoozed.
const UNKNOWN_KIND: Duration = Duration::from_secs(10);

/// The request at the end of an attempt, if any, and the response.
type Came = (Option<SettleRequest>, SettleResult);

/// An attempt of a task: the runs of its handler under one lease.
#[derive(Debug)]
pub(crate) struct Attempt {
    team: Arc<WorkerState>,
    claimed: Claimed,
    lease: Arc<Lease>,
    token: CancellationToken,
    waits: Arc<Waits>,
    /// Whether follow-up work may be leased without a claim.
    leads: bool,
    /// The speculative turn that was run with the result.
    ahead: Arc<Mutex<Option<SpeculativeTurn>>>,
    next: Mutex<Option<Continuation>>,
}

/// The follow-up work of an attempt, leased by its commit.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    /// The eager activities of the speculative turn.
    pub(crate) followers: Option<EagerActivities>,
    pub(crate) turn: Option<NextTurn>,
}

/// A leased workflow.
#[derive(Debug)]
pub(crate) struct NextTurn {
    pub(crate) granted: Granted,
    pub(crate) begun: Option<Box<Begun>>,
}

impl Attempt {
    pub(crate) fn new(team: &Arc<WorkerState>, granted: Granted, leads: bool) -> Self {
        let Granted { claimed, held } = granted;
        let lease = Lease::new(team, claimed.task.fence(), claimed.leased_from, held);
        let lease = Arc::new(lease);
        let waits = Arc::new(Waits::of(&claimed.task));
        let (token, next, ahead) = (CancellationToken::default(), Mutex::default(), Arc::default());
        Self { team: team.clone(), claimed, lease, token, waits, leads, ahead, next }
    }

    /// Runs the attempt and reports its outcome. Returns the follow-up work.
    pub(crate) async fn run(self, home: &Handle, interrupting: CancellationToken) -> Continuation {
        let begun = Instant::now();
        let (asked, answer) = self.attend(home, interrupting).await;
        let task = &self.claimed.task;
        self.team.worker.listener.tell(&AttemptReport {
            fence: self.lease.fence(),
            kind: task.kind.clone(),
            lane: task.lane.clone(),
            attempt: task.attempts,
            asked,
            answer,
            took: begun.elapsed(),
        });
        self.next.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
    }

    /// The workflow that this is a step of, if this worker may have it cached.
    fn workflow(&self) -> Option<TaskKey> {
        let task = &self.claimed.task;
        let workflow = task.step.and(task.parent.as_ref());
        let workflow = workflow.filter(|_| !self.team.worker.programs.is_empty())?;
        Some(TaskKey::new(&task.tenant, workflow))
    }

    /// Settles without follow-up work. A draining worker clears its sticky assignment in the same
    /// commit, so that the workflow does not wait for it.
    async fn settle_alone(&self, command: Command) -> Result<Outcome, SettleResult> {
        let Some(workflow) = self.workflow().filter(|_| self.team.is_closing()) else {
            return self.lease.settle(command).await;
        };
        let unstick = self.team.worker.unstick(vec![workflow.id]);
        self.lease.settle_with(command, unstick.into()).await.map(|settled| settled.first)
    }

    /// Settles, and leases the workflow of this step in the same commit.
    async fn settle_and_follow(&self, command: Command) -> Result<Outcome, SettleResult> {
        let Some(workflow) = self.workflow().filter(|_| !self.team.is_closing()) else {
            return self.settle_alone(command).await;
        };
        let mut unfinished = None;
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(ahead), Command::Complete(complete)) = (ahead, &command) {
            match ahead.keep(&self.team, &self.lease, complete.clone(), self.leads).await? {
                SpeculativeOutcome::Kept { followers, turn } => {
                    self.set_next(Continuation { followers, turn });
                    return Ok(Outcome::Settled(Settled::Completed));
                }
                SpeculativeOutcome::Unfinished(ahead) => unfinished = Some(ahead),
                SpeculativeOutcome::Refused => {}
            }
        }
        let request = self.team.worker.leases.request();
        let consume = self.team.worker.claim_granted(workflow, &request);
        let settled = self.lease.settle_with(command, consume.into()).await?;
        if let Some(Ok(Outcome::Claimed(mut claimed))) = settled.second
            && let Some(task) = claimed.pop()
        {
            let begun = unfinished.and_then(|ahead| ahead.under(&task));
            let granted = Granted::workflow(task, settled.batch_began, &request);
            self.set_next(Continuation {
                followers: None,
                turn: Some(NextTurn { granted, begun }),
            });
        }
        Ok(settled.first)
    }

    fn set_next(&self, next: Continuation) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Runs the handler until it ends, the lease is lost, or `interrupting` requests a release.
    async fn attend(&self, home: &Handle, interrupting: CancellationToken) -> Came {
        let task = &self.claimed.task;
        if Instant::now() >= self.lease.deadline() {
            tracing::warn!(task = %task.id, "claim took as long as its lease");
            self.lease.give_up().await;
            return (None, SettleResult::LeaseExpired);
        }
        if !self.team.worker.handlers.contains_key(&task.kind) {
            return self.snooze().await;
        }
        loop {
            if let Some(came) = self.run_handler(home, &interrupting).await {
                return came;
            }
        }
    }

    /// Runs the handler once. None if it waits for children that have all ended by then: it runs
    /// again at once, under the same lease.
    async fn run_handler(&self, home: &Handle, interrupting: &CancellationToken) -> Option<Came> {
        let task = &self.claimed.task;
        tracing::debug!(task = %task.id, epoch = task.epoch, "an attempt starts");
        // Dropping the set aborts the handler, so that it does not outlive this attempt.
        let mut handler = JoinSet::new();
        let workflow = task.step.and(task.parent.as_ref()).map(tracing::field::display);
        let span = tracing::info_span!(
            "attempt", task = %task.id, kind = %task.kind, attempt = task.attempts, workflow
        );
        handler.spawn_on(self.handle().instrument(span), home);
        let came = tokio::select! {
            biased;
            Some(ended) = handler.join_next() => return self.conclude(ended).await,
            ending = self.lease.keep() => match ending {
                LeaseEnd::Expiring => self.give_back(&mut handler).await,
                LeaseEnd::Expired => {
                    self.stop(&mut handler).await;
                    self.lease.give_up().await;
                    (None, SettleResult::LeaseExpired)
                }
                LeaseEnd::Revoked(rejection) => match self.stop(&mut handler).await {
                    Some(Ok(Err(failure))) if failure.is_suspended() => {
                        (Some(SettleRequest::Suspend), SettleResult::Settled)
                    }
                    _ => (None, SettleResult::Lost(rejection)),
                },
            },
            () = interrupting.cancelled() => self.give_back(&mut handler).await,
        };
        Some(came)
    }

    fn handle(&self) -> impl Future<Output = Handled> + Send + 'static {
        let (team, claimed, ahead) = (self.team.clone(), self.claimed.clone(), self.ahead.clone());
        let (token, deadline) = (self.token.clone(), self.lease.watch());
        let (until, waits) = (self.lease.deadline(), self.waits.clone());
        async move {
            // A handler may block its thread. Yield first to tasks queued on that thread: if the
            // engine shares this runtime, one of them may be a heartbeat.
            tokio::task::yield_now().await;
            let Claimed { task, input, .. } = claimed;
            let worker = &team.worker;
            let handler = worker.handlers.get(&task.kind).expect("attend checks that it exists");
            let payload = match input {
                Input::None => None,
                Input::Inline(payload) => Some(payload),
                Input::ByKey(key) => Some(fetch(&worker.engine, &key, until).await?),
            };
            let engine = worker.engine.clone();
            let context = Context::new(engine, task.clone(), payload, token, deadline, waits);
            let handled = handler.call(context).await;
            // User code runs on this runtime, also that of workflows.
            if let Some(made) = SpeculativeTurn::make(&team, &task, &handled) {
                *ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            }
            handled
        }
    }

    async fn conclude(&self, ended: Result<Handled, JoinError>) -> Option<Came> {
        let handled = match ended {
            Ok(handled) => handled,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Err(Failure::transient(panic_reason(&*panic))),
                // The runtime is shutting down: nothing can be settled.
                Err(_) => return Some((None, SettleResult::LeaseExpired)),
            },
        };
        let asked = SettleRequest::by(handled);
        let Some(command) = asked.command(self.lease.fence()) else {
            return Some((Some(asked), SettleResult::Settled));
        };
        match self.settle_and_follow(command).await {
            Ok(Outcome::ChildrenDone(_)) => None,
            Ok(_) => Some((Some(asked), SettleResult::Settled)),
            Err(answer) => Some((Some(asked), answer)),
        }
    }

    async fn settle(&self, asked: SettleRequest) -> Came {
        let settled = match asked.command(self.lease.fence()) {
            Some(command) => self.settle_alone(command).await.err(),
            None => None,
        };
        (Some(asked), settled.unwrap_or(SettleResult::Settled))
    }

    /// Snoozes a task, so that a worker with a handler for its kind can claim it.
    async fn snooze(&self) -> Came {
        let (task, kind) = (&self.claimed.task.id, &self.claimed.task.kind);
        tracing::warn!(%task, %kind, "task without a handler is snoozed");
        let reason = format!("this worker has no handler for {kind}");
        self.settle(SettleRequest::Snooze { pause: UNKNOWN_KIND, reason }).await
    }

    /// Stops the handler and releases its task. A result that it returns by then is committed.
    async fn give_back(&self, handler: &mut JoinSet<Handled>) -> Came {
        match timeout_at(self.lease.deadline(), self.stop(handler)).await {
            Ok(Some(Ok(Ok(result)))) => self.settle(SettleRequest::Complete(result)).await,
            Ok(Some(Ok(Err(failure)))) if failure.is_suspended() => {
                self.settle(SettleRequest::Suspend).await
            }
            Ok(_) => self.settle(SettleRequest::Release).await,
            // A handler that blocks its thread may still act: its lease is held until it ends.
            Err(_) => {
                tracing::warn!(task = %self.claimed.task.id, "handler does not stop in time");
                let (mut handler, lease) = (std::mem::take(handler), self.lease.clone());
                tokio::spawn(async move {
                    handler.shutdown().await;
                    lease.give_up().await;
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
