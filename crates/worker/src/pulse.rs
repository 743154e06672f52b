use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_core::command::{RegisterWorker, RetireWorker};
use windlass_engine::{Engine, Error};

use crate::worker::Worker;

/// How soon to try again what failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Registers a worker and says again and again that it is there, until it is dropped.
///
/// Whoever stops without [`Pulse::retire`] is taken for dead after a while, and what it holds is
/// free before its leases run out.
#[derive(Debug)]
pub(crate) struct Pulse {
    engine: Engine,
    retire: RetireWorker,
    beats: JoinHandle<()>,
}

impl Pulse {
    pub(crate) fn start(worker: &Worker) -> Self {
        let claim = &worker.claim;
        let register = RegisterWorker {
            tenant: claim.tenant.clone(),
            id: claim.worker.clone(),
            lanes: claim.lanes.iter().cloned().collect(),
            offer: claim.offer.clone(),
            every_ms: u64::try_from(worker.beat_every.as_millis()).unwrap_or(u64::MAX),
        };
        let retire = RetireWorker { tenant: claim.tenant.clone(), id: claim.worker.clone() };
        let (engine, every) = (worker.engine.clone(), worker.beat_every);
        let beats = tokio::spawn(beat(engine.clone(), register, every));
        Self { engine, retire, beats }
    }

    /// Says that the worker is about to end.
    pub(crate) async fn retire(self) {
        // A beat that is under way would register it again.
        self.beats.abort();
        match self.engine.submit(self.retire.clone()).await {
            Ok(_) | Err(Error::ShuttingDown) => {}
            Err(error) => tracing::warn!(%error, "a worker could not say that it ends"),
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

async fn beat(engine: Engine, register: RegisterWorker, every: Duration) {
    loop {
        let pause = match engine.submit(register.clone()).await {
            Ok(_) => every,
            Err(Error::ShuttingDown) => return,
            Err(Error::Rejected(rejection)) => {
                tracing::error!(worker = %register.id, %rejection, "a worker cannot register");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "a worker could not say that it is there");
                every.min(AGAIN)
            }
        };
        tokio::time::sleep(pause).await;
    }
}
