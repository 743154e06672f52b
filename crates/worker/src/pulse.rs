use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_core::command::{RegisterWorker, RetireWorker};
use windlass_engine::{Engine, Error};

use crate::token::Token;
use crate::worker::Worker;

/// How soon to try again what failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the last word may take. Without it the worker is taken for dead, after a while.
const PATIENCE: Duration = Duration::from_secs(5);

/// Registers a worker and says again and again that it is there, until it is dropped.
///
/// Whoever stops without [`Pulse::retire`] is taken for dead after a while, and what it holds is
/// free before its leases run out.
#[derive(Debug)]
pub(crate) struct Pulse {
    engine: Engine,
    retire: RetireWorker,
    /// Its first beat was answered, whatever the answer.
    tried: Token,
    stop: Token,
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
        let (tried, stop) = (Token::default(), Token::default());
        let signs = (tried.clone(), stop.clone());
        let beats = tokio::spawn(beat(engine.clone(), register, every, signs));
        Self { engine, retire, tried, stop, beats }
    }

    /// Waits for the answer to the first beat, so that nothing is claimed by a worker that nobody
    /// would miss. A store that refuses it does not keep the worker from its work.
    pub(crate) async fn tried(&self) {
        self.tried.cancelled().await;
    }

    /// Says that the worker is about to end.
    pub(crate) async fn retire(mut self) {
        self.stop.cancel();
        let retired = tokio::time::timeout(PATIENCE, async {
            // A beat that is under way would register it again.
            drop((&mut self.beats).await);
            self.engine.submit(self.retire.clone()).await
        });
        match retired.await {
            Ok(Ok(_) | Err(Error::ShuttingDown)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a worker could not say that it ends"),
            Err(_) => tracing::warn!("a worker could not say in time that it ends"),
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

async fn beat(engine: Engine, register: RegisterWorker, every: Duration, signs: (Token, Token)) {
    let (tried, stop) = signs;
    loop {
        let answer = engine.submit(register.clone()).await;
        tried.cancel();
        let pause = match answer {
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
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
