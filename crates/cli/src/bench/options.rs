use clap::{Args, Subcommand};
use windlass_engine::{Config, Error};
use windlass_store::StoreError;

use crate::bench::place::Place;
use crate::bench::{claim, drain, idle, pickup, tasks};
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
    /// Commits, processor and memory of an engine that only waits.
    Idle(idle::Idle),
}

/// What every benchmark takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Where: sqlite://PATH or memory: [default: a SQLite file in a temporary directory]
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
    #[error("a worker stopped: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

impl Common {
    pub(crate) fn config(&self) -> Config {
        let config = Config::default();
        if self.unbatched { Config { batch_commands: 1, ..config } } else { config }
    }

    pub(crate) fn place(&self) -> Result<Place, BenchError> {
        Place::of(self.store.clone())
    }
}

impl Bench {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        match self.what {
            What::Tasks(tasks) => tasks.run().await,
            What::Pickup(pickup) => pickup.run().await,
            What::Drain(drain) => drain.run().await,
            What::Claim(claim) => claim.run().await,
            What::Idle(idle) => idle.run().await,
        }
    }
}
