use std::time::Duration;

use tokio::task::JoinHandle;

use crate::claimer::Claimer;
use crate::token::Token;
use crate::worker::Worker;

/// A worker at work. Dropped without [`Running::drain`], it stops at once, and its leases run out
/// by themselves.
#[derive(Debug)]
pub struct Running {
    stop: Stop,
    claimer: JoinHandle<()>,
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
    pub(crate) fn start(worker: Worker) -> Self {
        let stop = Stop::default();
        let claimer = tokio::spawn(Claimer::new(worker, stop.clone()).run());
        Self { stop, claimer }
    }

    /// Claims nothing more and lets handlers finish. Those that take longer than `grace` are
    /// cancelled, and their tasks released unbilled. Returns when no handler runs and everything
    /// is settled; with a store that does not answer, when the leases are over.
    pub async fn drain(mut self, grace: Duration) {
        self.stop.closing.cancel();
        let ended = match tokio::time::timeout(grace, &mut self.claimer).await {
            Ok(ended) => ended,
            Err(_) => {
                self.stop.interrupting.cancel();
                (&mut self.claimer).await
            }
        };
        if let Err(error) = ended {
            tracing::error!(%error, "a worker ended by itself: this is a bug");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.claimer.abort();
    }
}
