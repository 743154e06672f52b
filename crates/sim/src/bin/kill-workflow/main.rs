//! A process that runs one long workflow, until the workflow has ended or the process is killed.
//!
//! `kill-workflow STORE BANK_PORT PROCESS STEPS` opens a SQLite file or a `postgres://` URL, starts
//! the workflow unless another process has, and works on it. It prints each activity that it
//! begins and leaves. When the workflow has ended it replays the history, prints the result, and
//! closes.

#[path = "../kill-request/bank.rs"]
mod bank;
mod chain;
mod line;
mod plan;
#[path = "../kill-request/stage.rs"]
mod stage;
#[path = "../kill-request/store.rs"]
mod store;
#[path = "../kill-request/watched.rs"]
mod watched;

use std::sync::Arc;
use std::time::Duration;

use windlass_core::{HistoryPayload, Payload};
use windlass_engine::{Config, Engine, Error, WorkflowHandle};
use windlass_worker::workflow::ExecutionStart;
use windlass_worker::workflow::testing::RecordedExecution;

use crate::bank::Bank;
use crate::chain::{CHAIN, Chain, SlowBank};
use crate::line::Line;
use crate::stage::Stage;
use crate::watched::Watched;

const THREADS: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(60);
/// While another process writes all the time, the store may be busy. These errors are retried.
const PASSING: &[&str] = &["store_unavailable", "outcome_unknown", "overloaded"];
const TRIES: usize = 20;

/// The orders of this process.
struct Orders {
    store: String,
    bank_port: u16,
    process: u32,
    steps: u32,
}

impl Orders {
    fn read() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        Some(Self {
            store: words.next()?,
            bank_port: words.next()?.parse().ok()?,
            process: words.next()?.parse().ok()?,
            steps: words.next()?.parse().ok()?,
        })
    }
}

fn main() -> Result<(), Error> {
    let orders = Orders::read().expect("kill-workflow STORE BANK_PORT PROCESS STEPS");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).enable_all().build();
    runtime.expect("a runtime can be created").block_on(live(orders))
}

async fn live(orders: Orders) -> Result<(), Error> {
    let stage = Arc::new(Stage { point: "-".to_owned() });
    let store = again(async || store::open(&orders.store).await.map_err(Error::from)).await?;
    let watched = || Watched { store: store.clone(), stage: stage.clone() };
    let engine = again(async || Engine::with_store(watched(), Config::default()).await).await?;
    let bank = SlowBank(Bank { port: orders.bank_port, stage: stage.clone() });
    let chain = Chain { bank, stage: stage.clone(), process: orders.process };
    let running = chain.work(&engine)?;
    let start = async || engine.start_workflow_named::<u64>(CHAIN, &orders.steps).id(CHAIN).await;
    let workflow = again(start).await?;
    let sum = again(async || workflow.result().await).await?;
    let turns = replayed(&chain, &workflow, orders.steps).await?;
    stage.say(&Line::Ended { sum, turns });
    running.drain(TIMEOUT).await;
    engine.shutdown().await
}

async fn again<T>(ask: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let mut answer = ask().await;
    for _ in 0..TRIES {
        match answer {
            Err(error) if PASSING.contains(&error.code()) => answer = ask().await,
            answer => return answer,
        }
    }
    answer
}

/// Replays the history. Returns the number of its rows.
async fn replayed(
    chain: &Chain,
    workflow: &WorkflowHandle<u64>,
    steps: u32,
) -> Result<usize, Error> {
    let task = workflow.task().await?;
    let first_step = task.workflow.as_ref().map_or(0, |workflow| workflow.first_step);
    let input = Some(HistoryPayload(Payload::json(steps.to_string())));
    let start = ExecutionStart { first_step, input, ..ExecutionStart::new(CHAIN, 0) };
    let recorded = RecordedExecution { start, rows: workflow.history().await? };
    recorded.check(&chain.workflow_definition()).expect("the history replays");
    Ok(recorded.rows.len())
}
