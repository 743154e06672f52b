//! A process that takes payments, each to be made once, until it is killed.
//!
//! `kill-request STORE BANK_PORT IN_FLIGHT_MS POINT LANE...` opens a SQLite file or a `postgres://`
//! URL, reads commands from its input, and calls the bank: in the handler of a request, or of a
//! task in one of the lanes. It prints its answers. When it reaches the point it kills itself
//! with signal 9. When its input ends it finishes its work, and closes.

mod bank;
mod line;
mod payments;
mod stage;
mod store;
mod watched;

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use windlass_core::{RequestTtls, limits};
use windlass_engine::{Config, Engine, Error, OnInFlight, RequestPolicy};

use crate::bank::Bank;
use crate::line::{Instruction, Line};
use crate::payments::Payments;
use crate::stage::Stage;
use crate::watched::Watched;

const THREADS: usize = 2;
const LEASE: Duration = Duration::from_secs(1);
/// Longer than any wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The orders of this process.
struct Orders {
    store: String,
    bank_port: u16,
    in_flight_ms: u64,
    point: String,
    lanes: Vec<String>,
}

impl Orders {
    fn read() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        Some(Self {
            store: words.next()?,
            bank_port: words.next()?.parse().ok()?,
            in_flight_ms: words.next()?.parse().ok()?,
            point: words.next()?,
            lanes: words.collect(),
        })
    }

    fn config(&self) -> Config {
        let ttls = RequestTtls { in_flight_ms: self.in_flight_ms, ..RequestTtls::default() };
        let on_in_flight = OnInFlight::Wait(TIMEOUT);
        let requests = RequestPolicy { ttls, on_in_flight, ..RequestPolicy::default() };
        Config { requests, ..Config::default() }
    }
}

fn main() -> Result<(), Error> {
    let orders = Orders::read().expect("kill-request STORE BANK_PORT IN_FLIGHT_MS POINT LANE...");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).enable_all().build();
    runtime.expect("a runtime can be created").block_on(live(orders))
}

/// The parent's commands.
fn hear() -> mpsc::UnboundedReceiver<Instruction> {
    let (said, heard) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let instruction = serde_json::from_str(&line).expect("the parent writes commands");
            if said.send(instruction).is_err() {
                return;
            }
        }
    });
    heard
}

async fn live(orders: Orders) -> Result<(), Error> {
    let mut heard = hear();
    let stage = Arc::new(Stage { point: orders.point.clone() });
    let store = Watched { store: store::open(&orders.store).await?, stage: stage.clone() };
    let engine = Engine::with_store(store, orders.config()).await?;
    let (go, goes) = watch::channel(false);
    let bank = Bank { port: orders.bank_port, stage: stage.clone() };
    let payments =
        Payments { engine: engine.clone(), bank, stage: stage.clone(), goes, runs: Arc::default() };
    let most_lanes = usize::try_from(limits::CLAIM_LANES.max).unwrap_or(usize::MAX);
    let workers = orders.lanes.chunks(most_lanes).map(|lanes| payments.work(lanes));
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    stage.say(&Line::Ready);
    let mut calls = JoinSet::new();
    while let Some(instruction) = heard.recv().await {
        match instruction {
            Instruction::Go => drop(go.send_replace(true)),
            Instruction::Ask(ask) => {
                for _ in 0..ask.times {
                    calls.spawn(payments.clone().serve(ask.clone()));
                }
            }
        }
    }
    drop(go);
    while let Some(call) = calls.join_next().await {
        call.expect("no call panics");
    }
    for worker in workers {
        worker.drain(TIMEOUT).await;
    }
    engine.shutdown().await
}
