use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_core::command::{DeregisterWorker, RegisterWorker};
use windlass_core::{Command, Outcome};
use windlass_engine::{Engine, Error};

use crate::attempt_report::Listener;
use crate::cancellation_token::CancellationToken;
use crate::lease_registry::LeaseRegistry;
use crate::worker::Worker;

/// How soon to retry a failed heartbeat.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last requests may take. A worker that does not deregister is declared dead.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Registers a worker and sends its heartbeats, until it is dropped.
///
/// A worker that stops without [`WorkerHeartbeat::deregister`] is declared dead after a while, and
/// its leases are revoked before they expire.
#[derive(Debug)]
pub(crate) struct WorkerHeartbeat {
    engine: Engine,
    heartbeat: Heartbeat,
    /// Set when the first heartbeat has succeeded or failed.
    first_beat_done: CancellationToken,
    stop: CancellationToken,
    alive_until: AliveUntil,
    beats: JoinHandle<()>,
}

/// Until when the worker cannot be declared dead, by its clock: counted from before its last
/// successful heartbeat was sent.
pub(crate) type AliveUntil = watch::Receiver<Instant>;

/// A worker that is not registered yet cannot be declared dead.
const UNREGISTERED: Duration = Duration::from_secs(366 * 86_400);

impl WorkerHeartbeat {
    pub(crate) fn start(worker: &Worker) -> Self {
        let claim = &worker.claim;
        let register = RegisterWorker {
            tenant: claim.tenant.clone(),
            id: claim.worker.clone(),
            lanes: claim.lanes.iter().cloned().collect(),
            capabilities: claim.capabilities.clone(),
            heartbeat_interval_ms: u64::try_from(worker.heartbeat_interval.as_millis())
                .unwrap_or(u64::MAX),
            held: None,
        };
        let heartbeat = Heartbeat { register, leases: worker.leases.clone() };
        let (engine, every) = (worker.engine.clone(), worker.heartbeat_interval);
        let (first_beat_done, stop) = (CancellationToken::default(), CancellationToken::default());
        let (alive, alive_until) = watch::channel(Instant::now() + UNREGISTERED);
        let failures = worker.heartbeat_failures.clone();
        let signals = HeartbeatSignals {
            first_beat_done: first_beat_done.clone(),
            stop: stop.clone(),
            alive,
            failures,
        };
        let beats = tokio::spawn(beat(engine.clone(), heartbeat.clone(), every, signals));
        Self { engine, heartbeat, first_beat_done, stop, alive_until, beats }
    }

    pub(crate) fn alive_until(&self) -> AliveUntil {
        self.alive_until.clone()
    }

    /// Waits for the response to the first heartbeat: leases of an unregistered worker would not be
    /// revoked if it died. If the heartbeat fails, the worker claims all the same.
    pub(crate) async fn first_beat_done(&self) {
        self.first_beat_done.cancelled().await;
    }

    /// Deregisters the worker.
    pub(crate) async fn deregister(mut self) {
        self.stop.cancel();
        let deregistered = tokio::time::timeout(SHUTDOWN_TIMEOUT, async {
            // A heartbeat in flight would register it again.
            drop((&mut self.beats).await);
            // A heartbeat ends one page of leases that are not held.
            while self.deregister_once().await? > 0 {}
            Ok(())
        });
        match deregistered.await {
            Ok(Ok(()) | Err(Error::ShuttingDown)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "worker deregistration failed"),
            Err(_) => tracing::warn!("worker deregistration timed out"),
        }
    }
}

impl WorkerHeartbeat {
    /// Returns how many leases the last heartbeat has ended.
    async fn deregister_once(&self) -> Result<usize, Error> {
        let outcomes = self.engine.submit_many(self.heartbeat.last_commands()).await?;
        let outcomes = outcomes.into_iter().collect::<Result<Vec<Outcome>, Error>>()?;
        match outcomes.first() {
            Some(Outcome::WorkerRegistered { lost, .. }) => Ok(*lost),
            _ => Ok(0),
        }
    }
}

impl Drop for WorkerHeartbeat {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

/// Composes the heartbeats of a worker.
#[derive(Clone, Debug)]
struct Heartbeat {
    register: RegisterWorker,
    leases: Arc<LeaseRegistry>,
}

impl Heartbeat {
    /// A heartbeat that reports the leases that the worker holds.
    fn compose(&self) -> RegisterWorker {
        RegisterWorker { held: self.leases.report(), ..self.register.clone() }
    }

    /// The last heartbeat and the deregistration. The heartbeat ends leases that the worker does
    /// not hold: a worker that is not registered cannot be declared dead.
    fn last_commands(&self) -> Vec<Command> {
        let RegisterWorker { tenant, id, .. } = self.register.clone();
        vec![self.compose().into(), DeregisterWorker { tenant, id }.into()]
    }
}

/// The channels of the heartbeat loop.
struct HeartbeatSignals {
    first_beat_done: CancellationToken,
    stop: CancellationToken,
    alive: watch::Sender<Instant>,
    failures: Listener<Error>,
}

async fn beat(engine: Engine, heartbeat: Heartbeat, every: Duration, signals: HeartbeatSignals) {
    let HeartbeatSignals { first_beat_done, stop, alive, failures } = signals;
    let worker = &heartbeat.register.id;
    let lasts =
        Duration::from_millis(RegisterWorker::lasts_ms(heartbeat.register.heartbeat_interval_ms));
    loop {
        let sent_at = Instant::now();
        let outcome = engine.submit(heartbeat.compose()).await;
        if outcome.is_ok() {
            alive.send_replace(sent_at + lasts);
        }
        first_beat_done.cancel();
        let pause = match outcome {
            Ok(Outcome::WorkerRegistered { lost, .. }) if lost > 0 => {
                tracing::warn!(%worker, lost, "revoked leases that this worker does not hold");
                Duration::ZERO
            }
            // A late response leaves little time until the worker is declared dead.
            Ok(_) => every.saturating_sub(sent_at.elapsed()),
            Err(Error::ShuttingDown) => return,
            Err(Error::Rejected(rejection)) => {
                tracing::error!(%worker, %rejection, "worker registration rejected");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "worker heartbeat failed");
                failures.call(&error);
                every.min(RETRY_INTERVAL)
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
