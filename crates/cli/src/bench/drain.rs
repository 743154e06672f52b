use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value};
use windlass::{Failure, Worker};
use windlass_core::command::{Claim, Complete, NewTask};
use windlass_core::{Command, Tenant, WorkerId};
use windlass_engine::{Engine, Error};

use crate::bench::bench_store::{BULK, KIND, fill, fill_one_by_one, own_tenant};
use crate::bench::drain_processes::{DrainProcesses, ProcessArgs};
use crate::bench::fleet::Fleet;
use crate::bench::ledger::{Ledger, Share};
use crate::bench::load::completed;
use crate::bench::options::{BenchError, Common};
use crate::bench::process::{Memory, Usage};
use crate::bench::report::{Progress, Report};

/// Measure the drain of a backlog.
///
/// One worker with many handlers, as in a program; the handlers do nothing. With --raw, without the
/// worker: bulk claims and settles.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    common: Common,
    /// The size of the backlog.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// How many handlers may run at once.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handlers: u32,
    /// Bulk claims and settles, without the worker.
    #[arg(long, conflicts_with = "handlers")]
    raw: bool,
    /// The number of concurrent callers.
    #[arg(long, default_value_t = 4, requires = "raw")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    workers: u32,
    /// How many tasks a caller claims at a time.
    #[arg(long, default_value_t = 100, requires = "raw")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    claim: u32,
    /// Create the tasks one by one, with this many concurrent callers [default: in bulk, by one]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    producers: Option<u32>,
    /// Drain with this many processes, one worker in each, and check in the log which process did
    /// what and that no task ran twice.
    #[arg(long, conflicts_with_all = ["raw", "producers"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    processes: Option<u32>,
    /// Drain with one process first, for comparison.
    #[arg(long, requires = "processes")]
    compare: bool,
}

impl Drain {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        match self.processes {
            Some(processes) => self.run_together(processes).await,
            None => self.run_alone().await,
        }
    }

    async fn run_together(&self, processes: u32) -> Result<(), BenchError> {
        let mut report = Report::default();
        report.set("bench", "drain");
        report.set("handlers", self.handlers);
        let rate = |of: &Report| of.value("tasks_per_s");
        let one = if self.compare { Some(self.drain_together(1).await?) } else { None };
        let together = self.drain_together(processes).await?;
        if let Some(one) = one {
            report.number("one_process_per_s", rate(&one));
            report.number("ratio", rate(&together) / rate(&one));
            report.within("one_process", one);
        }
        report.merge(together);
        report.print(self.common.json);
        Ok(())
    }

    async fn drain_together(&self, processes: u32) -> Result<Report, BenchError> {
        let (bench_store, tenant) = (self.common.bench_store()?, own_tenant());
        if !bench_store.is_shared() {
            return Err(BenchError::NotShared);
        }
        let (expiry_ms, json) = (bench_store.expiry_ms(), self.common.json);
        let fleet = Fleet::start(&bench_store, &self.common.config(), 1).await?;
        let expire = move |_, task: &mut NewTask| task.deadline_ms = expiry_ms;
        fill(&[fleet.first().clone(), fleet.first().clone()], &tenant, self.tasks, json, expire)
            .await?;
        // An idle engine would sweep and listen beside the measured ones.
        fleet.shutdown().await?;
        let store = bench_store.url().open().await?;
        let start_seq = store.describe().await?.last_seq;
        let args = ProcessArgs {
            store: bench_store.url(),
            tenant: &tenant,
            handlers: self.handlers,
            unbatched: self.common.unbatched,
        };
        let reports =
            DrainProcesses::start(&args, processes).await?.drain(self.tasks, json).await?;
        let ledger = Ledger::read(&*store, &tenant, start_seq, json).await?;
        ledger.check(self.tasks)?;
        let durability = store.describe().await?.durability;
        store.close().await?;
        let mut report = shares(&ledger, &reports);
        report.set("processes", processes);
        report.set("tasks", self.tasks);
        report.number("tasks_per_s", self.tasks as f64 / ledger.seconds());
        report.set("durability", durability);
        Ok(report)
    }

    async fn run_alone(self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let tenant = own_tenant();
        let filling = Instant::now();
        let (expiry_ms, json) = (bench_store.expiry_ms(), self.common.json);
        match self.producers {
            Some(callers) => {
                fill_one_by_one(&engine, &tenant, self.tasks, callers, json, expiry_ms).await?;
            }
            None => {
                let expire = move |_, task: &mut NewTask| task.deadline_ms = expiry_ms;
                fill(std::slice::from_ref(&engine), &tenant, self.tasks, json, expire).await?;
            }
        }
        let fill_per_s = self.tasks as f64 / filling.elapsed().as_secs_f64();
        let memory = Memory::watch();
        let (commits, stats, usage) =
            (store.describe().await?.commits, engine.stats(), Usage::start());
        match self.raw {
            true => self.drain_raw(&engine, &tenant).await?,
            false => self.drain_with_worker(&engine, &tenant).await?,
        }
        let (elapsed, cpu) = (usage.elapsed().as_secs_f64(), usage.cpu_percent());
        let after = engine.stats();
        let description = store.describe().await?;
        let drained = completed(&engine, &tenant, self.tasks).await?;
        let mut report = Report::default();
        report.set("bench", "drain");
        report.set("mode", if self.raw { "raw" } else { "worker" });
        report.set("tasks", drained);
        match self.raw {
            true => report.set("workers", self.workers),
            false => report.set("handlers", self.handlers),
        }
        report.set("batching", self.batching());
        report.number("fill_per_s", fill_per_s);
        report.number("tasks_per_s", drained as f64 / elapsed);
        report.number("cycles_per_s", drained as f64 / elapsed);
        report.number("commands_per_s", (after.commands - stats.commands) as f64 / elapsed);
        report.batches(stats, after);
        report.set("commits", description.commits - commits);
        report.maybe("cpu_percent", cpu);
        report.memory(&memory);
        report.set("durability", description.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    /// Returns when every task has been handled and settled.
    async fn drain_with_worker(&self, engine: &Engine, tenant: &Tenant) -> Result<(), BenchError> {
        let progress = Arc::new(Progress::new("draining", self.tasks, self.common.json));
        let handled = progress.clone();
        let worker = Worker::new(engine.clone(), "bench")
            .tenant(tenant.clone())
            .concurrency(self.handlers as usize)
            .max_tasks(self.tasks)
            .raw_handler(KIND, move |_| {
                handled.add(1);
                std::future::ready(Ok::<_, Failure>(None))
            });
        let mut running = worker.start()?;
        running.wait().await;
        drop(progress);
        Ok(())
    }

    async fn drain_raw(&self, engine: &Engine, tenant: &Tenant) -> Result<(), BenchError> {
        let progress = Arc::new(Progress::new("draining", self.tasks, self.common.json));
        let claim = |n| {
            let worker = format!("worker-{n}");
            Claim { tenant: tenant.clone(), limit: self.claim, ..Claim::new(worker) }
        };
        let workers: Vec<_> = (0..self.workers)
            .map(|n| tokio::spawn(work(engine.clone(), claim(n), progress.clone())))
            .collect();
        for worker in workers {
            worker.await??;
        }
        Ok(())
    }

    fn batching(&self) -> String {
        let create = match self.producers {
            Some(callers) => format!("{callers} producers, 1 a create"),
            None => format!("1 producer, {BULK} a create"),
        };
        match self.raw {
            true => format!("{create}; {} workers, {} a claim", self.workers, self.claim),
            false => format!("{create}; 1 worker, {} handlers", self.handlers),
        }
    }
}

async fn work(engine: Engine, claim: Claim, progress: Arc<Progress>) -> Result<(), Error> {
    loop {
        let claimed = engine.claim(claim.clone(), Duration::ZERO).await?;
        if claimed.is_empty() {
            return Ok(());
        }
        let complete = |fence| Command::from(Complete { fence, result: None });
        let commands: Vec<_> = claimed.iter().map(|c| complete(c.task.fence())).collect();
        for result in engine.submit_many(commands).await? {
            result?;
        }
        progress.add(claimed.len() as u64);
    }
}

/// The share of each process by the log, and the counters that it reports.
fn shares(ledger: &Ledger, reports: &[Map<String, Value>]) -> Report {
    let mut report = Report::default();
    let mut least = f64::MAX;
    for (n, report_of_process) in (1..).zip(reports) {
        let name = format!("process-{n}");
        let Share { claims, completions } =
            ledger.workers.get(&WorkerId::new(&*name)).copied().unwrap_or_default();
        let percent = 100.0 * claims as f64 / ledger.claims.max(1) as f64;
        least = least.min(percent);
        let mut one = Report::default();
        one.set("claims", claims);
        one.number("claims_percent", percent);
        one.set("completions", completions);
        for name in ["not_settled", "batches", "commands", "conflicts"] {
            one.set(name, report_of_process.get(name).cloned().unwrap_or_default());
        }
        report.within(&name, one);
    }
    report.number("min_share_percent", least);
    report.set("claims", ledger.claims);
    report.set("released", ledger.released);
    report.set("leases_expired", ledger.expired);
    report.set("max_attempts", ledger.most_attempts);
    report
}
