use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::claimer::Claimer;
use crate::token::Token;
use crate::worker::Worker;

/// A worker at work. Dropped without [`Running::drain`], it stops at once, and its leases run out
/// by themselves.
#[derive(Debug)]
pub struct Running {
    stop: Stop,
    /// None once it has ended.
    claimer: Option<JoinHandle<()>>,
}

/// How a worker is told to stop, in two steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// Claim nothing more.
    pub(crate) closing: Token,
    /// Give back what is not done.
    pub(crate) interrupting: Token,
}

impl Running {
    /// Handlers run where this is called; claims and heartbeats run with the engine.
    pub(crate) fn start(worker: Worker) -> Self {
        let stop = Stop::default();
        let engine = worker.engine.runtime().clone();
        let (home, told) = (Handle::current(), stop.clone());
        let run = async move { Claimer::new(worker, told, home).run().await };
        Self { stop, claimer: Some(engine.spawn(run)) }
    }

    /// Waits until the worker has ended by itself, with everything settled: as
    /// [`Worker::at_most`] and [`Worker::until_idle`] say, or because its engine shuts down.
    ///
    /// Dropping this future changes nothing.
    pub async fn ended(&mut self) {
        let Some(claimer) = &mut self.claimer else { return };
        if let Err(error) = claimer.await {
            tracing::error!(%error, "a worker ended by itself: this is a bug");
        }
        self.claimer = None;
    }

    /// Claims nothing more and lets handlers finish. Those that take longer than `grace` are
    /// cancelled, and their tasks released unbilled. Returns when no handler runs and everything
    /// is settled; with a store that does not answer, when the leases are over.
    pub async fn drain(mut self, grace: Duration) {
        self.stop.closing.cancel();
        if tokio::time::timeout(grace, self.ended()).await.is_err() {
            self.stop.interrupting.cancel();
            self.ended().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(claimer) = &self.claimer {
            claimer.abort();
        }
    }
}
