use clap::{Args, ValueEnum};

/// What is run, and how apalis is set up for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// The database, `postgres://...`; apalis must not have been there yet.
    #[arg(long)]
    pub(crate) url: String,
    /// How many jobs.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) jobs: u64,
    /// How the jobs are pushed.
    #[arg(long, value_enum, default_value_t = Push::OneByOne)]
    pub(crate) push: Push,
    /// How many jobs one bulk push takes.
    #[arg(long, default_value_t = 500)]
    pub(crate) bulk: usize,
    /// How many callers push one by one.
    #[arg(long, default_value_t = 64)]
    pub(crate) callers: usize,
    /// How many jobs a worker runs at once.
    #[arg(long, default_value_t = 64)]
    pub(crate) concurrency: usize,
    /// How many workers.
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: usize,
    /// How many jobs a worker fetches at a time; apalis writes their results in one go as well.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) batch: usize,
    /// Write down that a job runs before it does.
    #[arg(long)]
    pub(crate) lock: bool,
    /// How many connections the pool has, all of them open from the start [default: as many as
    /// callers, 4 in bulk]
    #[arg(long)]
    pub(crate) connections: Option<u32>,
    /// Leave it to autovacuum when Postgres learns what the tables look like.
    #[arg(long)]
    pub(crate) without_statistics: bool,
    /// One JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Push {
    OneByOne,
    Bulk,
}

impl Settings {
    /// One producer, one worker, what it writes and its heartbeat have no use for more than four.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.unwrap_or(match self.push {
            Push::OneByOne => u32::try_from(self.callers).unwrap_or(u32::MAX),
            Push::Bulk => 4,
        })
    }

    /// In words, for a table.
    pub(crate) fn batching(&self) -> String {
        let push = match self.push {
            Push::OneByOne => format!("{} callers, 1 a push", self.callers),
            Push::Bulk => format!("1 producer, {} a push_bulk", self.bulk),
        };
        let workers = if self.workers == 1 { "worker" } else { "workers" };
        let statistics = if self.without_statistics { "" } else { ", ANALYZE" };
        let (count, batch, connections) = (self.workers, self.batch, self.connections());
        format!("{push}; {count} {workers}, {batch} a fetch, {connections} connections{statistics}")
    }
}
