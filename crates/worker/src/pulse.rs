use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_core::command::{RegisterWorker, RetireWorker};
use windlass_engine::{Engine, Error};

use crate::settlement::Listener;
use crate::token::Token;
use crate::worker::Worker;

/// How soon to try again what failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the last word may take. Without it the worker is taken for dead, after a while.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

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
    heard: Heard,
    beats: JoinHandle<()>,
}

/// Until when nobody takes the worker for dead, by its own clock: counted from before it said that
/// it is there.
pub(crate) type Heard = watch::Receiver<Instant>;

/// As long as nobody was ever told of a worker, nobody misses it.
const EVER: Duration = Duration::from_secs(366 * 86_400);

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
        let (hear, heard) = watch::channel(Instant::now() + EVER);
        let failures = worker.heartbeat_failures.clone();
        let signs = Signs { tried: tried.clone(), stop: stop.clone(), hear, failures };
        let beats = tokio::spawn(beat(engine.clone(), register, every, signs));
        Self { engine, retire, tried, stop, heard, beats }
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
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

/// What the beats tell, and what they are told.
struct Signs {
    tried: Token,
    stop: Token,
    hear: watch::Sender<Instant>,
    failures: Listener<Error>,
}

async fn beat(engine: Engine, register: RegisterWorker, every: Duration, signs: Signs) {
    let Signs { tried, stop, hear, failures } = signs;
    let lasts = Duration::from_millis(RegisterWorker::lasts_ms(register.every_ms));
    loop {
        let asked = Instant::now();
        let answer = engine.submit(register.clone()).await;
        if answer.is_ok() {
            hear.send_replace(asked + lasts);
        }
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
                failures.tell(&error);
                every.min(AGAIN)
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
