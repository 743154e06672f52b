use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use windlass_core::Command;
use windlass_core::command::{Claim, Complete, NewTask};
use windlass_engine::{Engine, Error};

use crate::bench::options::{BenchError, Common};
use crate::bench::place::{BULK, fill, fill_one_by_one, own_tenant};
use crate::bench::process::{Usage, memory_mib};
use crate::bench::report::{Progress, Report};

/// Burn down a backlog.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    common: Common,
    /// How many tasks wait at the start.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// How many workers drain at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    workers: u32,
    /// How many tasks a worker claims at a time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    claim: u32,
    /// Create the tasks one by one, by so many callers at once [default: in bulk, by one]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    producers: Option<u32>,
}

impl Drain {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let place = self.common.place()?;
        let (engine, store) = place.start(self.common.config()).await?;
        let tenant = own_tenant();
        let expiry_ms = place.expiry_ms();
        let started = Instant::now();
        let (tasks, json) = (self.tasks, self.common.json);
        match self.producers {
            Some(callers) => {
                fill_one_by_one(&engine, &tenant, tasks, callers, json, expiry_ms).await?;
            }
            None => {
                let expire = |_, task: &mut NewTask| task.deadline_ms = expiry_ms;
                fill(&engine, &tenant, tasks, json, expire).await?;
            }
        }
        let filled = started.elapsed().as_secs_f64();
        let memory_before = memory_mib();
        let (commits, stats, usage) =
            (store.describe().await?.commits, engine.stats(), Usage::start());
        let progress = Arc::new(Progress::new("draining", self.tasks, self.common.json));
        let claim = |n| {
            let worker = format!("worker-{n}");
            Claim { tenant: tenant.clone(), limit: self.claim, ..Claim::new(worker) }
        };
        let workers: Vec<_> = (0..self.workers)
            .map(|n| tokio::spawn(work(engine.clone(), claim(n), progress.clone())))
            .collect();
        let mut drained = 0;
        for worker in workers {
            drained += worker.await??;
        }
        drop(progress);
        let (elapsed, cpu) = (usage.elapsed().as_secs_f64(), usage.cpu_percent());
        let description = store.describe().await?;
        let mut report = Report::default();
        report.set("bench", "drain");
        report.set("tasks", drained);
        report.set("workers", self.workers);
        report.set("batching", self.batching());
        report.number("fill_per_s", self.tasks as f64 / filled);
        report.number("tasks_per_s", drained as f64 / elapsed);
        report.number("cycles_per_s", drained as f64 / elapsed);
        let after = engine.stats();
        report.number("commands_per_s", (after.commands - stats.commands) as f64 / elapsed);
        report.batches(stats, after);
        report.set("commits", description.commits - commits);
        report.maybe("cpu_percent", cpu);
        report.maybe("memory_mib_before", memory_before);
        report.maybe("memory_mib_after", memory_mib());
        report.set("durability", description.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    fn batching(&self) -> String {
        let create = match self.producers {
            Some(callers) => format!("{callers} producers, 1 a create"),
            None => format!("1 producer, {BULK} a create"),
        };
        format!("{create}; {} workers, {} a claim", self.workers, self.claim)
    }
}

async fn work(engine: Engine, claim: Claim, progress: Arc<Progress>) -> Result<u64, Error> {
    let mut drained = 0;
    loop {
        let claimed = engine.claim(claim.clone(), Duration::ZERO).await?;
        if claimed.is_empty() {
            return Ok(drained);
        }
        let complete = |fence| Command::from(Complete { fence, result: None });
        let commands: Vec<_> = claimed.iter().map(|c| complete(c.task.fence())).collect();
        for answer in engine.submit_many(commands).await? {
            answer?;
        }
        drained += claimed.len() as u64;
        progress.add(claimed.len() as u64);
    }
}
