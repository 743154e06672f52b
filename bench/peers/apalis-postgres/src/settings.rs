use clap::{Args, ValueEnum};

/// The work, and the configuration of apalis for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// The database, `postgres://...`; without tables of apalis.
    #[arg(long)]
    pub(crate) url: String,
    /// The number of jobs.
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
    /// The number of workers.
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: usize,
    /// How many jobs a worker fetches at a time; apalis also writes their results in one batch.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) batch: usize,
    /// Record that a job runs before it does.
    #[arg(long)]
    pub(crate) lock: bool,
    /// How many connections the pool has, all open from the start [default: 16, 4 in bulk]
    #[arg(long)]
    pub(crate) connections: Option<u32>,
    /// Leave statistics to autovacuum, without an explicit ANALYZE.
    #[arg(long)]
    pub(crate) without_statistics: bool,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Push {
    OneByOne,
    Bulk,
}

impl Settings {
    /// One producer, one worker, its result writer and its heartbeat need no more than four.
    /// Commits of callers are serialized, as each notifies: more connections only wait in Postgres.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.unwrap_or(match self.push {
            Push::OneByOne => 16,
            Push::Bulk => 4,
        })
    }

    /// As text, for a table.
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
