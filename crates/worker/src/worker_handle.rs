use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::cancellation_token::CancellationToken;
use crate::claimer::Claimer;
use crate::worker::Worker;

/// Handle of a started worker. If it is dropped without [`WorkerHandle::drain`], the worker stops
/// at once; its leases expire or are revoked when it is declared dead.
#[derive(Debug)]
pub struct WorkerHandle {
    stop: StopSignals,
    /// None once it has ended.
    claimer: Option<JoinHandle<()>>,
}

/// Stops a worker in two steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSignals {
    /// Claim nothing more.
    pub(crate) closing: CancellationToken,
    /// Release tasks whose handlers still run.
    pub(crate) interrupting: CancellationToken,
}

impl WorkerHandle {
    /// Handlers run on the caller's runtime; claims and heartbeats run on the engine's.
    pub(crate) fn start(worker: Worker) -> Self {
        let stop = StopSignals::default();
        let engine = worker.engine.runtime().clone();
        let (runtime, signals) = (Handle::current(), stop.clone());
        let run = async move { Claimer::new(worker, signals, runtime).run().await };
        Self { stop, claimer: Some(engine.spawn(run)) }
    }

    /// Waits until the worker has stopped and everything is settled, because of
    /// [`Worker::max_tasks`] or [`Worker::exit_when_idle`], or because its engine shuts down.
    ///
    /// Dropping this future changes nothing.
    pub async fn wait(&mut self) {
        let Some(claimer) = &mut self.claimer else { return };
        if let Err(error) = claimer.await {
            tracing::error!(%error, "worker panicked: this is a bug");
        }
        self.claimer = None;
    }

    /// Stops claiming and lets handlers finish. Those that take longer than `grace` are cancelled,
    /// and their tasks are released without counting the attempt. Returns when no handler runs and
    /// everything is settled; if the store does not respond, when the leases have expired.
    pub async fn drain(mut self, grace: Duration) {
        self.stop.closing.cancel();
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            self.stop.interrupting.cancel();
            self.wait().await;
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        if let Some(claimer) = &self.claimer {
            claimer.abort();
        }
    }
}
