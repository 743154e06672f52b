use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use windlass_core::command::Claim;
use windlass_core::limits;
use windlass_engine::{ClaimedTask, Error};

use crate::attempt_set::AttemptSet;
use crate::lease::Granted;
use crate::lease_registry::PendingRequest;
use crate::retry_delay::RetryDelay;
use crate::short_lease::ShortLease;
use crate::worker::Worker;
use crate::worker_handle::StopSignals;
use crate::worker_heartbeat::WorkerHeartbeat;
use crate::worker_state::{Permit, WorkerState};

/// The shortest time for which a claim waits for a task before it is sent again.
const MIN_CLAIM_WAIT: Duration = Duration::from_secs(5);

/// The shortest time between two warnings.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Claims as many tasks as there are free slots, and runs an attempt for each.
#[derive(Debug)]
pub(crate) struct Claimer {
    worker: Arc<Worker>,
    stop: StopSignals,
    state: Arc<WorkerState>,
    slots: Arc<Semaphore>,
    /// How many claimed tasks have a handler here.
    started: u64,
    heartbeat: WorkerHeartbeat,
    /// When it last warned of short leases.
    warned_at: Option<Instant>,
}

impl Claimer {
    pub(crate) fn new(worker: Worker, stop: StopSignals, runtime: Handle) -> Self {
        let slots = Arc::new(Semaphore::new(worker.concurrency));
        let heartbeat = WorkerHeartbeat::start(&worker);
        let worker = Arc::new(worker);
        let state = Arc::new(WorkerState {
            worker: worker.clone(),
            runtime,
            slots: slots.clone(),
            stop: stop.clone(),
            alive_until: heartbeat.alive_until(),
            attempts: AttemptSet::default(),
        });
        Self { worker, stop, state, slots, started: 0, heartbeat, warned_at: None }
    }

    /// Claims until it is stopped, then waits for the attempts in flight.
    pub(crate) async fn run(mut self) {
        let _abort = AbortOnDrop(self.state.clone());
        let closing = self.stop.closing.clone();
        tokio::select! {
            biased;
            // A claim that is dropped here releases the tasks that it was granted.
            () = closing.cancelled() => {}
            () = async { self.heartbeat.first_beat_done().await; self.claim().await } => {}
        }
        // Idle workflows are released before the attempts in flight end, which may take long.
        let idle = self.worker.cache.take_idle();
        tokio::join!(self.worker.release_sticky(idle), self.state.attempts.wait());
        self.worker.release_sticky(self.worker.cache.clear()).await;
        self.heartbeat.deregister().await;
    }

    /// Returns when the engine shuts down, or when the task limit or idle time is reached.
    async fn claim(&mut self) {
        let mut pause = RetryDelay::default();
        let mut busy_at = Instant::now();
        let mut alive_until = self.state.alive_until.clone();
        while self.tasks_left() > 0 {
            let slots = self.free_slots().await;
            // A worker about to be declared dead would get leases that it has to release at once.
            let margin = self.worker.heartbeat_interval;
            if alive_until.wait_for(|until| Instant::now() + margin < *until).await.is_err() {
                return;
            }
            let limit = u32::try_from(slots.num_permits()).unwrap_or(u32::MAX);
            let request = self.worker.leases.request();
            let claim = Claim { limit, request: Some(request.id()), ..self.worker.claim.clone() };
            // A claim that waits may time out undecided; the last one does not wait.
            let is_last_claim =
                self.worker.stop_when.idle.is_some_and(|idle| busy_at.elapsed() >= idle);
            let wait = if is_last_claim { Duration::ZERO } else { self.claim_wait() };
            match self.worker.engine.claim(claim, wait).await {
                Ok(claimed)
                    if is_last_claim && claimed.is_empty() && self.state.attempts.is_empty() =>
                {
                    return;
                }
                Ok(claimed) => {
                    pause = RetryDelay::default();
                    self.start(claimed, slots, &request);
                }
                Err(Error::ShuttingDown) => return,
                Err(error) => {
                    tracing::warn!(%error, "claim failed and is retried");
                    tokio::time::sleep(pause.next()).await;
                    // It is unknown whether any task is ready.
                    busy_at = Instant::now();
                }
            }
            if !self.state.attempts.is_empty() {
                busy_at = Instant::now();
            }
            self.state.attempts.remove_ended();
        }
    }

    /// How long a claim waits for a task before it is sent again.
    fn claim_wait(&self) -> Duration {
        let wait = (self.worker.lease_length() / 6).max(MIN_CLAIM_WAIT);
        self.worker.stop_when.idle.map_or(wait, |idle| idle.clamp(Duration::from_millis(1), wait))
    }

    /// Warns when granting a lease takes so much of it that little is left to renew it in.
    fn check_length(&mut self, elapsed: Duration) {
        let Some(short) = ShortLease::check(self.worker.lease_length(), elapsed) else { return };
        if self.warned_at.is_some_and(|at| at.elapsed() < WARN_INTERVAL) {
            return;
        }
        self.warned_at = Some(Instant::now());
        tracing::warn!(worker = %self.worker.claim.worker, "{short}");
        self.worker.short_leases.call(&short);
    }

    /// How many tasks may be started before this worker stops.
    fn tasks_left(&self) -> usize {
        let left = self.worker.stop_when.tasks.map(|tasks| tasks.saturating_sub(self.started));
        left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Waits for a free slot, and takes all that one claim can fill.
    async fn free_slots(&self) -> OwnedSemaphorePermit {
        let first = self.slots.clone().acquire_owned().await;
        let mut slots = first.expect("the slots are never closed");
        let most = usize::try_from(limits::CLAIM_TASKS.max).unwrap_or(1).min(self.tasks_left());
        let more = self.slots.available_permits().min(most - 1);
        let more = u32::try_from(more).unwrap_or(0);
        if let Ok(more) = self.slots.clone().try_acquire_many_owned(more) {
            slots.merge(more);
        }
        slots
    }

    fn start(
        &mut self,
        claimed: Vec<ClaimedTask>,
        mut slots: OwnedSemaphorePermit,
        request: &PendingRequest,
    ) {
        if let Some(first) = claimed.first() {
            self.check_length(first.leased_from.elapsed());
        }
        for claimed in claimed {
            let slot = slots.split(1).expect("a claim is limited to the free slots");
            // A task without a handler here is snoozed, and not counted.
            self.started += u64::from(self.worker.handlers.contains_key(&claimed.task.kind));
            let granted = Granted::new(claimed, request);
            let run = self.state.clone().run_task(granted, Permit::new(slot));
            self.state.attempts.spawn(run);
        }
    }
}

/// Aborts all attempts however the claimer ends.
struct AbortOnDrop(Arc<WorkerState>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.attempts.abort();
    }
}
