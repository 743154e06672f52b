use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use windlass_core::command::{Release, Renew};
use windlass_core::{Command, Fence, Lifecycle, Outcome, Rejection, Task};
use windlass_engine::{ClaimedTask, CommandResults, Engine, Error, TaskInput};

use crate::attempt_report::SettleResult;
use crate::cancellation_token::CancellationToken;
use crate::lease_registry::{HeldLease, PendingRequest};
use crate::retry_delay::RetryDelay;
use crate::worker_heartbeat::SHUTDOWN_TIMEOUT;
use crate::worker_state::WorkerState;

/// The pause between two checks of a lease: notifications may come in quick succession.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The most time a handler has to stop once it is cancelled.
const MAX_STOP_GRACE: Duration = Duration::from_secs(1);

/// The right to act on a task, by this worker's clock: counted from the start of the batch that
/// granted it, so that it expires here before it expires in the store.
#[derive(Debug)]
pub(crate) struct Lease {
    engine: Engine,
    fence: Fence,
    length: Duration,
    renewed: watch::Sender<Instant>,
    deadline: Deadline,
    /// Set when the grace period of a drain is over.
    interrupting: CancellationToken,
    /// Heartbeats report the lease as held until this is dropped.
    _held: HeldLease,
}

/// A task that was leased to this worker.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) claimed: ClaimedTask,
    pub(crate) held: HeldLease,
}

impl Granted {
    pub(crate) fn new(claimed: ClaimedTask, request: &PendingRequest) -> Self {
        let held = request.granted(&claimed.task.fence());
        Self { claimed, held }
    }

    /// A workflow that was leased by the commit that ended its activity.
    pub(crate) fn workflow(
        task: Arc<Task>,
        leased_from: Instant,
        request: &PendingRequest,
    ) -> Self {
        let input = task.input_key().map_or(TaskInput::None, TaskInput::ByKey);
        Self::new(ClaimedTask { task, input, leased_from }, request)
    }
}

/// Until when a lease can be relied on: until it expires, and until the worker may be declared dead
/// for missed heartbeats, which revokes its leases early.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    renewed: watch::Receiver<Instant>,
    alive_until: watch::Receiver<Instant>,
}

impl Deadline {
    pub(crate) fn at(&self) -> Instant {
        (*self.renewed.borrow()).min(*self.alive_until.borrow())
    }
}

/// Why a lease is not renewed again.
#[derive(Debug)]
pub(crate) enum LeaseEnd {
    /// It is held, and so close to expiry that the handler must stop.
    Expiring,
    Expired,
    Revoked(Rejection),
}

impl Lease {
    pub(crate) fn new(state: &WorkerState, fence: Fence, from: Instant, held: HeldLease) -> Self {
        let (engine, length) = (state.worker.engine.clone(), state.worker.lease_length());
        let renewed = watch::Sender::new(from + length);
        let deadline =
            Deadline { renewed: renewed.subscribe(), alive_until: state.alive_until.clone() };
        let interrupting = state.stop.interrupting.clone();
        Self { engine, fence, length, renewed, deadline, interrupting, _held: held }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence.clone()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline.at()
    }

    pub(crate) fn watch(&self) -> Deadline {
        self.deadline.clone()
    }

    /// How long a handler has to stop once it is cancelled.
    pub(crate) fn stop_grace(&self) -> Duration {
        MAX_STOP_GRACE.min(self.length / 6)
    }

    /// Renews the lease until the handler must stop.
    pub(crate) async fn renew_until_end(&self) -> LeaseEnd {
        tokio::select! {
            // Biased, so that simulations are deterministic.
            biased;
            ending = self.renew_until_expiring() => ending,
            rejection = self.revoked() => LeaseEnd::Revoked(rejection),
        }
    }

    /// Waits until the lease is revoked. The engine is notified by the commit that revokes it.
    async fn revoked(&self) -> Rejection {
        let mut watch = self.engine.watch_lease(&self.fence.task);
        loop {
            watch.revoked().await;
            if let Some(rejection) = self.check().await {
                tracing::warn!(task = %self.fence.task.id, %rejection, "lease revoked");
                return rejection;
            }
            sleep(RECHECK_INTERVAL).await;
        }
    }

    /// Returns why the lease has ended in the store, if it has.
    async fn check(&self) -> Option<Rejection> {
        match self.engine.task(&self.fence.task).await {
            Ok(None) => Some(Rejection::TaskNotFound),
            Ok(Some(task)) if task.epoch != self.fence.epoch => {
                Some(Rejection::StaleFence { current: task.epoch })
            }
            Ok(Some(task)) => match &task.lifecycle {
                Lifecycle::Active(_) => None,
                ended if ended.ended_at().is_some() => {
                    Some(Rejection::AlreadyTerminal { state: ended.public() })
                }
                _ => Some(Rejection::NotLeased),
            },
            // The next renewal finds out.
            Err(_) => None,
        }
    }

    /// Renews the lease repeatedly, until the handler must stop.
    async fn renew_until_expiring(&self) -> LeaseEnd {
        let task = &self.fence.task.id;
        let stop_at = || self.deadline() - self.stop_grace();
        let mut next = *self.renewed.borrow() - self.length + self.length / 3;
        let mut pause = RetryDelay::default();
        loop {
            sleep_until(next.min(stop_at())).await;
            let now = Instant::now();
            if now >= stop_at() {
                tracing::warn!(%task, "lease not renewed in time: stopping the handler");
                return if now < self.deadline() { LeaseEnd::Expiring } else { LeaseEnd::Expired };
            }
            if now < next {
                // A heartbeat has moved the deadline.
                continue;
            }
            match timeout_at(stop_at(), self.renew()).await {
                Ok(Ok(from)) => {
                    self.renewed.send_replace(from + self.length);
                    next = from + self.length / 3;
                    pause = RetryDelay::default();
                }
                Ok(Err(Error::Rejected(rejection))) if ends_lease(&rejection) => {
                    tracing::warn!(%task, %rejection, "lease lost");
                    return LeaseEnd::Revoked(rejection);
                }
                Ok(Err(error)) => {
                    tracing::warn!(%task, %error, "lease renewal failed");
                    next = Instant::now() + pause.next();
                }
                // Too late to renew, which the next iteration finds.
                Err(_) => {}
            }
        }
    }

    /// Renews the lease. Returns the time from which it counts.
    async fn renew(&self) -> Result<Instant, Error> {
        let lease_ms = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        let renew = Renew { fence: self.fence.clone(), lease_ms };
        let results = self.engine.submit_timed(vec![renew.into()]).await?;
        results.results.into_iter().collect::<Result<Vec<Outcome>, Error>>()?;
        Ok(results.batch_began)
    }

    /// Ends the lease with an idempotent command. Retries until there is a response or the lease
    /// expires.
    pub(crate) async fn settle(&self, command: Command) -> Result<Outcome, SettleResult> {
        self.settle_timed(command).await.map(|(outcome, _)| outcome)
    }

    /// Like [`Lease::settle`]; also returns when the batch began that settled it: leases that it
    /// granted count from there.
    pub(crate) async fn settle_timed(
        &self,
        command: Command,
    ) -> Result<(Outcome, Instant), SettleResult> {
        self.settle_first(vec![command]).await.map(|settled| (settled.first, settled.batch_began))
    }

    /// Like [`Lease::settle`], with a second command in the same commit, and its response.
    pub(crate) async fn settle_with(
        &self,
        command: Command,
        other: Command,
    ) -> Result<SettledWith, SettleResult> {
        self.settle_first(vec![command, other]).await
    }

    async fn settle_first(&self, commands: Vec<Command>) -> Result<SettledWith, SettleResult> {
        let task = &self.fence.task.id;
        let command = commands[0].name();
        let mut pause = RetryDelay::default();
        while Instant::now() < self.deadline() {
            let renewal = async {
                let CommandResults { results, batch_began } =
                    self.engine.submit_timed(commands.clone()).await?;
                let mut results = results.into_iter();
                let first = results.next().unwrap_or(Err(Error::OutcomeUnknown))?;
                Ok(SettledWith { first, second: results.next(), batch_began })
            };
            // A settle that was sent before the deadline counts if its batch began in time. No
            // code acts under the lease meanwhile, so it is safe to wait for its response.
            match timeout_at(self.deadline() + SHUTDOWN_TIMEOUT, renewal).await {
                Ok(Ok(settled)) => {
                    tracing::debug!(
                        %task, epoch = self.fence.epoch, command, "attempt settled"
                    );
                    return Ok(settled);
                }
                Ok(Err(error)) if is_retryable_under_lease(&error) => {
                    tracing::warn!(%task, %error, "settle failed and is retried");
                    sleep(pause.next()).await;
                }
                Ok(Err(error)) => {
                    // A speculative turn may lose against another worker's turn.
                    if matches!(commands[0], Command::CompleteAndCommitTurn(_)) {
                        tracing::debug!(%task, %error, "speculative workflow turn rejected");
                    } else {
                        tracing::warn!(%task, %error, "settle rejected");
                    }
                    return Err(SettleResult::Rejected(error));
                }
                Err(_) => break,
            }
        }
        tracing::warn!(%task, "lease expired before it could be settled");
        self.abandon().await;
        Err(SettleResult::LeaseExpired)
    }

    /// Releases a lease that this worker stopped acting under, because it could not renew it or
    /// send heartbeats. In the store the lease may last for much longer. Retries until the store
    /// has responded, the lease has expired there too, or the worker stops; a lease that is not
    /// released by then is not held, and a heartbeat reports that.
    pub(crate) async fn abandon(&self) {
        let ending = async {
            self.interrupting.cancelled().await;
            sleep(SHUTDOWN_TIMEOUT).await;
        };
        let task = &self.fence.task.id;
        tokio::select! {
            biased;
            () = self.release_with_retries() => {}
            () = sleep_until(*self.renewed.borrow()) => {
                tracing::debug!(%task, "lease expired before it could be released");
            }
            () = ending => tracing::warn!(%task, "lease release timed out"),
        }
    }

    async fn release_with_retries(&self) {
        let task = &self.fence.task.id;
        let mut pause = RetryDelay::default();
        loop {
            match self.engine.submit(Release { fence: self.fence.clone() }).await {
                Ok(_) => return tracing::debug!(%task, "lease released"),
                Err(Error::Rejected(rejection)) => {
                    return tracing::debug!(%task, %rejection, "lease has already ended");
                }
                Err(error) if is_retryable_under_lease(&error) => {
                    tracing::warn!(%task, %error, "lease release failed and is retried");
                    sleep(pause.next()).await;
                }
                Err(error) => return tracing::warn!(%task, %error, "lease release failed"),
            }
        }
    }
}

/// The outcome of a settle, with the response to the second command.
#[derive(Debug)]
pub(crate) struct SettledWith {
    pub(crate) first: Outcome,
    pub(crate) second: Option<Result<Outcome, Error>>,
    /// Leases that it granted count from here.
    pub(crate) batch_began: Instant,
}

fn ends_lease(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::StaleFence { .. }
            | Rejection::AlreadyTerminal { .. }
            | Rejection::LeaseExpired
            | Rejection::NotLeased
            | Rejection::TaskNotFound
    )
}

/// Whether a worker retries a request while it holds the lease, which bounds the retries. Every
/// error of the store counts: a statement timeout, for example, is reported as a rejected change.
pub(crate) fn is_retryable_under_lease(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::Store(_))
}
