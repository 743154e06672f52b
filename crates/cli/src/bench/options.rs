use clap::{Args, Subcommand};
use windlass_engine::{Config, Error};
use windlass_store::StoreError;
use windlass_worker::workflow::{Nondeterminism, TurnFailure};

use crate::bench::bench_store::BenchStore;
use crate::bench::{
    claim, contended, drain, idle, pickup, share, signal, snapshot, tasks, workflows,
};
use windlass::StoreUrl;

/// Run benchmarks on this machine.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Concurrent callers, each: create a task, claim one, complete it, repeatedly.
    Tasks(tasks::Tasks),
    /// The latency from the arrival of a task to the start of its handler, at a steady rate.
    Pickup(pickup::Pickup),
    /// Drain a backlog with a worker whose handlers do nothing.
    Drain(drain::Drain),
    /// The cost of a claim from backlogs of different size and shape.
    Claim(claim::ClaimCost),
    /// Workflows: throughput, cost of a step, cost of sleeping workflows, a cold replay.
    Workflows(workflows::Workflows),
    /// The latency from a signal to the resumed handler, for many suspended tasks at once.
    Signal(signal::SignalCost),
    /// Engines that contend for a lane with a limit: with row locks, and optimistically.
    Contended(contended::Contended),
    /// The load of `tasks` while another session holds an old snapshot of the database.
    Snapshot(snapshot::Snapshot),
    #[command(hide = true)]
    DrainShare(share::DrainShare),
    /// Commits, CPU and memory of an idle engine.
    Idle(idle::Idle),
}

/// The options of every benchmark.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The store: sqlite://PATH, postgres:// or memory: [default: a temporary SQLite file]
    ///
    /// In a named store, the benchmark uses its own tenant and touches no other tasks; the tasks
    /// that it leaves there expire.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,
    /// Print one JSON object on standard output, nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// One command per transaction: the same code without batching.
    #[arg(long)]
    pub(crate) unbatched: bool,
    /// Give the tasks that are left in a named store no deadline.
    #[arg(long)]
    pub(crate) leave: bool,
    /// How many batches an engine commits at once [default: 1, with a server 2]
    #[arg(long, value_name = "N")]
    pub(crate) batches: Option<usize>,
}

/// Why a benchmark stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] Error),
    #[error("creating a temporary directory: {0}")]
    Temporary(std::io::Error),
    #[error("{completed} of {expected} tasks are completed in the store")]
    NotDrained { completed: u64, expected: u64 },
    #[error(
        "by the log {completed_once} of {tasks} tasks were completed once, under the fence of \
         their last claim, and {claims_accounted} of {claims} claims are accounted for"
    )]
    Ledger { completed_once: u64, tasks: u64, claims: u64, claims_accounted: u64 },
    #[error("the lane counts {running} running tasks, but none runs")]
    ConcurrencyLimit { running: u32 },
    #[error("a claim returned {0} tasks instead of one")]
    Claimed(usize),
    #[error("the store has {there} tasks instead of {expected}")]
    Backlog { there: u64, expected: u64 },
    #[error("a memory store cannot be shared: name a file or a server")]
    NotShared,
    #[error("this needs a database server: --store postgres://...")]
    NoServer,
    #[error("a process of this benchmark: {0}")]
    Process(std::io::Error),
    #[error("a process of this benchmark exited early")]
    ProcessEnded,
    #[error("the session that holds a snapshot: {0}")]
    Session(tokio_postgres::Error),
    #[error("{rows} history rows were read although every workflow was cached")]
    HistoryRead { rows: u64 },
    #[error("not all of {expected} workflows slept when they were due: raise --due-after")]
    Awake { expected: u64 },
    #[error("a row of a history: {0}")]
    Row(serde_json::Error),
    #[error("a replay: {0}")]
    Replay(Nondeterminism),
    #[error("a turn after a replay: {0}")]
    Turn(TurnFailure),
    #[error("a worker stopped: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

impl Common {
    pub(crate) fn config(&self) -> Config {
        let config = Config { max_concurrent_batches: self.batches, ..Config::default() };
        if self.unbatched { Config { batch_commands: 1, ..config } } else { config }
    }

    pub(crate) fn bench_store(&self) -> Result<BenchStore, BenchError> {
        BenchStore::of(self.store.clone(), self.leave)
    }
}

impl Bench {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        match self.what {
            What::Tasks(tasks) => tasks.run().await,
            What::Pickup(pickup) => pickup.run().await,
            What::Drain(drain) => drain.run().await,
            What::Claim(claim) => claim.run().await,
            What::Signal(signal) => signal.run().await,
            What::Workflows(workflows) => workflows.run().await,
            What::Contended(contended) => contended.run().await,
            What::Snapshot(snapshot) => snapshot.run().await,
            What::DrainShare(share) => share.run().await,
            What::Idle(idle) => idle.run().await,
        }
    }
}
