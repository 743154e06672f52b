use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The work, and the configuration of apalis for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// The database file; it must not exist yet.
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// The number of jobs.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) jobs: u64,
    /// How the jobs are pushed.
    #[arg(long, value_enum, default_value_t = Push::OneByOne)]
    pub(crate) push: Push,
    /// How many jobs one bulk push takes.
    #[arg(long, default_value_t = 500)]
    pub(crate) bulk: usize,
    /// How many producers push one by one, and how many jobs a worker runs at once.
    #[arg(long, default_value_t = 64)]
    pub(crate) concurrency: usize,
    /// The number of workers.
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: usize,
    /// How many jobs a worker fetches at a time; apalis also writes their results in one batch.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) batch: usize,
    /// Record that a job runs before it does, in the transaction that writes its result.
    #[arg(long)]
    pub(crate) lock: bool,
    /// How many connections the pool has, all open from the start.
    #[arg(long, default_value_t = 2)]
    pub(crate) connections: u32,
    /// Leave SQLite without statistics, as apalis does. Writing results then reads every job that
    /// the worker ever had, and gets slower with each.
    #[arg(long)]
    pub(crate) without_statistics: bool,
    /// How often SQLite checkpoints the write-ahead log, in pages.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) checkpoint_pages: u32,
    /// The durability of a commit; as shipped, the setup of apalis decides.
    #[arg(long, value_enum, default_value_t = Synchronous::Full)]
    pub(crate) synchronous: Synchronous,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Push {
    OneByOne,
    Bulk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Synchronous {
    Full,
    Normal,
    AsShipped,
}

impl Synchronous {
    /// The setting forced on every connection; none if apalis decides.
    pub(crate) fn forced(self) -> Option<&'static str> {
        match self {
            Synchronous::Full => Some("FULL"),
            Synchronous::Normal => Some("NORMAL"),
            Synchronous::AsShipped => None,
        }
    }
}

impl Settings {
    /// As text, for a table.
    pub(crate) fn batching(&self) -> String {
        let push = match self.push {
            Push::OneByOne => format!("{} producers, 1 a push", self.concurrency),
            Push::Bulk => format!("1 producer, {} a push", self.bulk),
        };
        let workers = if self.workers == 1 { "worker" } else { "workers" };
        let statistics = if self.without_statistics { "" } else { ", ANALYZE" };
        format!("{push}; {} {workers}, {} a fetch{statistics}", self.workers, self.batch)
    }
}
