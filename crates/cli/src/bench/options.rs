use clap::{Args, Subcommand};
use windlass_engine::{Config, Error};
use windlass_store::StoreError;
use windlass_worker::workflow::{Nondeterminism, TurnFailure};

use crate::bench::place::Place;
use crate::bench::{
    claim, contended, drain, idle, pickup, share, signal, snapshot, tasks, workflows,
};
use windlass::StoreUrl;

/// Measure this machine.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Callers side by side, each: create a task, claim one, complete it, again and again.
    Tasks(tasks::Tasks),
    /// From the arrival of a task to the start of its handler, at a steady rate.
    Pickup(pickup::Pickup),
    /// Burn down a backlog with a worker whose handlers do nothing.
    Drain(drain::Drain),
    /// What a claim costs against backlogs of different size and shape.
    Claim(claim::ClaimCost),
    /// Workflows: how many a second, what a step costs, what sleeping ones cost, a cold replay.
    Workflows(workflows::Workflows),
    /// From a signal to the handler that it lets go on, for many suspended tasks at once.
    Signal(signal::SignalCost),
    /// Engines side by side on a lane with a limit: waiting for it, and without.
    Contended(contended::Contended),
    /// The load of `tasks` while somebody holds an old snapshot of the database open.
    Snapshot(snapshot::Snapshot),
    #[command(hide = true)]
    DrainShare(share::DrainShare),
    /// Commits, processor and memory of an engine that only waits.
    Idle(idle::Idle),
}

/// What every benchmark takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Where: sqlite://PATH, postgres:// or memory: [default: a temporary SQLite file]
    ///
    /// In a store that is kept, the benchmark works under a tenant of its own and touches nobody's
    /// tasks; what it leaves there expires by itself.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,
    /// One JSON object on standard output, nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// One command per transaction: the same code without batching.
    #[arg(long)]
    pub(crate) unbatched: bool,
    /// Leave behind what is left in a store that is kept, without a deadline.
    #[arg(long)]
    pub(crate) leave: bool,
    /// How many batches an engine has under way at once [default: 1, with a server 2]
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
    #[error("a temporary directory: {0}")]
    Temporary(std::io::Error),
    #[error("{completed} of {asked} tasks are completed in the store")]
    NotDrained { completed: u64, asked: u64 },
    #[error(
        "by the log {once} of {tasks} tasks were completed once, under the fence of their last \
         claim, and {claims_accounted} of {claims} claims are accounted for"
    )]
    Ledger { once: u64, tasks: u64, claims: u64, claims_accounted: u64 },
    #[error("the lane counts {running} tasks that run, and none does")]
    Gate { running: u32 },
    #[error("a claim took {0} tasks where it was to take one")]
    Claimed(usize),
    #[error("there are {there} tasks in the store where {asked} were to be")]
    Backlog { there: u64, asked: u64 },
    #[error("what is in memory is one engine's own: name a file or a server")]
    NotShared,
    #[error("this needs a database server: --store postgres://...")]
    NoServer,
    #[error("a process of this benchmark: {0}")]
    Process(std::io::Error),
    #[error("a process of this benchmark ended before its time")]
    ProcessEnded,
    #[error("the session that holds a snapshot: {0}")]
    Session(tokio_postgres::Error),
    #[error("{rows} rows of histories were read, where every workflow was in memory")]
    HistoryRead { rows: u64 },
    #[error("not all of {asked} workflows slept when they were due: give them more, --due-after")]
    Awake { asked: u64 },
    #[error("a row of a history: {0}")]
    Row(serde_json::Error),
    #[error("a replay: {0}")]
    Replay(Nondeterminism),
    #[error("a turn behind a replay: {0}")]
    Turn(TurnFailure),
    #[error("a worker stopped: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

impl Common {
    pub(crate) fn config(&self) -> Config {
        let config = Config { batches_at_once: self.batches, ..Config::default() };
        if self.unbatched { Config { batch_commands: 1, ..config } } else { config }
    }

    pub(crate) fn place(&self) -> Result<Place, BenchError> {
        Place::of(self.store.clone(), self.leave)
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
