//! One engine process: it creates its share of the tasks, claims, and settles, until it is killed
//! or asked to close.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use windlass_engine::{Config, Engine, Error, Stats};
use windlass_store::StoreError;
use windlass_store_postgres::{Options, PostgresStore};
use windlass_worker::{
    AttemptReport, Context, Failure, SettleRequest, SettleResult, Worker, WorkerHandle,
};

use crate::caller::Caller;
use crate::line::{How, Line, Run};
use crate::process_log::{self, ProcessLog};
use crate::task_spec::{FREE, KIND, LANES, LIMITED, Plan, SINGLE, TaskSpec};
use crate::watched::Watched;

pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// Shorter than a lease, so that a stopped process loses its locks before its leases.
const TIMEOUT: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 4;
const THREADS: usize = 2;
/// The delay before an unavailable database is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// The orders of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) url: String,
    /// The folder of the logs.
    pub(crate) folder: PathBuf,
    pub(crate) process: usize,
    pub(crate) processes: usize,
    pub(crate) life: usize,
    /// The number of its callers that create tasks.
    pub(crate) creators: u64,
    /// The number of tasks it may run concurrently.
    pub(crate) workers: usize,
    pub(crate) tasks: u64,
    pub(crate) seed: u64,
    /// The start of the run in Unix milliseconds, and the time in which all tasks are created.
    pub(crate) began_ms: u64,
    pub(crate) span_ms: u64,
}

pub(crate) fn lease_ms() -> u64 {
    u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Opens the database, which may be unavailable.
pub(crate) async fn open(url: &str) -> PostgresStore {
    let (config, options) = Options::parse(url).expect("the server's URL is valid");
    let options = Options { patience: TIMEOUT, connections: CONNECTIONS, ..options };
    loop {
        match PostgresStore::open_with(config.clone(), options.clone()).await {
            Ok(store) => return store,
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(PAUSE).await,
            Err(error) => panic!("opening the database failed: {error}"),
        }
    }
}

pub(crate) fn run(orders: Orders) -> Result<(), Error> {
    let Orders { folder, process, life, .. } = &orders;
    let acknowledged = process_log::read(folder, *process).expect("a process log can be read");
    let log = ProcessLog::create(folder, *process, *life).expect("a file can be created");
    let log = Arc::new(log);
    let hook = log.clone();
    std::panic::set_hook(Box::new(move |panic| hook.fail(panic.to_string())));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).enable_all().build();
    let created = acknowledged.iter().filter_map(|line| match line {
        Line::Created { nth, .. } => Some(*nth),
        _ => None,
    });
    let created = Arc::new(created.collect::<BTreeSet<u64>>());
    runtime.expect("a runtime can be created").block_on(live(orders, log, created))
}

async fn live(
    orders: Orders,
    log: Arc<ProcessLog>,
    created: Arc<BTreeSet<u64>>,
) -> Result<(), Error> {
    let mut commands = read_commands();
    let store = Watched { store: open(&orders.url).await, log: log.clone() };
    let engine = Engine::with_store(store, Config::default()).await?;
    let name = format!("{}.{}", orders.process, orders.life);
    let caller = Caller { engine: engine.clone(), log: log.clone(), name };
    let orders = Arc::new(orders);
    for creator in 0..orders.creators {
        tokio::spawn(create(caller.clone(), orders.clone(), created.clone(), creator));
    }
    let callers = (orders.workers / 4).max(1);
    for _ in 0..callers {
        tokio::spawn(caller.clone().work());
    }
    let running = work(&caller, orders.workers.saturating_sub(callers).max(1))?;
    // Receives the parent's command to close, or the end of the parent.
    if commands.recv().await.is_none() {
        return Ok(());
    }
    running.drain(Duration::ZERO).await;
    engine.shutdown().await?;
    let Stats { batches, conflicts, sweeps, .. } = engine.stats();
    log.write(&Line::Worked { batches, conflicts, sweeps });
    log.write(&Line::Closed);
    Ok(())
}

/// The parent's command to close. This process exits with its parent.
fn read_commands() -> tokio::sync::mpsc::UnboundedReceiver<()> {
    let (said, heard) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            // The receiver is dropped once closing has begun.
            let _ = said.send(());
        }
        std::process::exit(1);
    });
    heard
}

/// Creates every task of this creator that no earlier life saw created, each at its time.
async fn create(caller: Caller, orders: Arc<Orders>, created: Arc<BTreeSet<u64>>, creator: u64) {
    let Orders { process, processes, creators, tasks, seed, began_ms, span_ms, .. } = *orders;
    // The parent has the number zero, and creates none of these.
    let first = process as u64 - 1 + creator * processes as u64;
    let step = usize::try_from(processes as u64 * creators).unwrap_or(usize::MAX);
    for nth in (first..tasks - LANES.len() as u64).step_by(step) {
        if created.contains(&nth) {
            continue;
        }
        let due_ms = began_ms + nth * span_ms / tasks;
        tokio::time::sleep(Duration::from_millis(due_ms.saturating_sub(unix_ms()))).await;
        caller.create(&TaskSpec::new(seed, nth, tasks)).await;
    }
}

pub(crate) fn work(caller: &Caller, slots: usize) -> Result<WorkerHandle, Error> {
    let (log, listener) = (caller.log.clone(), caller.log.clone());
    let name = caller.name.clone();
    Worker::new(caller.engine.clone(), name.as_str())
        .lanes([FREE, LIMITED, SINGLE])
        .concurrency(slots)
        .lease(LEASE)
        .on_settled(move |settlement| write_down(&listener, settlement))
        .handler(KIND, move |context, plan| handle(log.clone(), name.clone(), context, plan))
        .start()
}

async fn handle(
    log: Arc<ProcessLog>,
    worker: String,
    context: Context,
    plan: Plan,
) -> Result<String, Failure> {
    let (run, attempt) = (run_of(&context.fence()), context.attempt());
    log.write(&Line::Claimed { run: run.clone(), attempt, worker });
    if plan == Plan::Slowly {
        tokio::time::sleep(LEASE * 3 / 2).await;
    }
    let fails = matches!(plan, Plan::FailFirst(times) if attempt <= times);
    let how = if fails { How::Fail } else { How::Complete };
    log.write(&Line::SettleRequested { run: run.clone(), how });
    if fails { Err(Failure::transient(run)) } else { Ok(run.to_string()) }
}

fn run_of(fence: &windlass_core::Fence) -> Run {
    Run { id: fence.task.id.to_string(), epoch: fence.epoch }
}

/// A worker retries a settle, so that a rejected one may have been committed before.
fn write_down(log: &ProcessLog, settlement: &AttemptReport) {
    let run = run_of(&settlement.fence);
    let how = match &settlement.request {
        Some(SettleRequest::Complete(_)) => How::Complete,
        Some(SettleRequest::Fail(_)) => How::Fail,
        Some(SettleRequest::Release) => How::Release,
        Some(SettleRequest::Snooze { .. }) => log.fail(format!("{run} was snoozed")),
        Some(SettleRequest::Suspend) => log.fail(format!("{run} was suspended")),
        Some(SettleRequest::WaitChildren) => log.fail(format!("{run} waits for children")),
        None => match &settlement.result {
            SettleResult::Lost(rejection) => {
                return log.write(&Line::Lost { run, code: rejection.code().to_owned() });
            }
            _ => return log.write(&Line::Over { run }),
        },
    };
    log.write(&match &settlement.result {
        SettleResult::Settled => Line::Settled { run, how },
        SettleResult::Rejected(error) => {
            Line::Rejected { run, how, code: error.code().to_owned(), unsure: true }
        }
        SettleResult::LeaseExpired | SettleResult::Lost(_) => Line::Over { run },
    });
}
