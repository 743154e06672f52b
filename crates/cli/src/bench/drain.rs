use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use windlass::{Failure, Worker};
use windlass_core::command::{Claim, Complete, NewTask};
use windlass_core::{Command, PublicState, Tenant};
use windlass_engine::{Engine, Error};

use crate::bench::options::{BenchError, Common};
use crate::bench::place::{BULK, KIND, fill, fill_one_by_one, own_tenant};
use crate::bench::process::{Memory, Usage};
use crate::bench::report::{Progress, Report};

/// Burn down a backlog.
///
/// One worker with many handlers, as a program would have it; the handlers do nothing. With --raw,
/// without the worker: bare claims and settles in bulk.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    common: Common,
    /// How many tasks wait at the start.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// How many handlers may run at once.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handlers: u32,
    /// Bare claims and settles in bulk, without the worker.
    #[arg(long, conflicts_with = "handlers")]
    raw: bool,
    /// How many callers drain at once.
    #[arg(long, default_value_t = 4, requires = "raw")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    workers: u32,
    /// How many tasks a caller claims at a time.
    #[arg(long, default_value_t = 100, requires = "raw")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
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
        let filling = Instant::now();
        let (expiry_ms, json) = (place.expiry_ms(), self.common.json);
        match self.producers {
            Some(callers) => {
                fill_one_by_one(&engine, &tenant, self.tasks, callers, json, expiry_ms).await?;
            }
            None => {
                let expire = |_, task: &mut NewTask| task.deadline_ms = expiry_ms;
                fill(&engine, &tenant, self.tasks, json, expire).await?;
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

    /// Ends when every task has been handled and settled.
    async fn drain_with_worker(&self, engine: &Engine, tenant: &Tenant) -> Result<(), BenchError> {
        let progress = Arc::new(Progress::new("draining", self.tasks, self.common.json));
        let handled = progress.clone();
        let worker = Worker::new(engine.clone(), "bench")
            .tenant(tenant.clone())
            .concurrency(self.handlers as usize)
            .at_most(self.tasks)
            .raw_handler(KIND, move |_| {
                handled.add(1);
                std::future::ready(Ok::<_, Failure>(None))
            });
        let mut running = worker.start()?;
        running.ended().await;
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

/// How many tasks are completed, by the store; an error if it is not what was asked for.
async fn completed(engine: &Engine, tenant: &Tenant, asked: u64) -> Result<u64, BenchError> {
    let states = engine.count_by_state(tenant).await?;
    let completed = states.get(PublicState::Completed.as_str()).copied().unwrap_or_default();
    if completed == asked {
        Ok(completed)
    } else {
        Err(BenchError::NotDrained { completed, asked })
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
        for answer in engine.submit_many(commands).await? {
            answer?;
        }
        progress.add(claimed.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::Config;
    use windlass_store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn what_counts_is_what_the_store_has() {
        let engine = Engine::start(MemoryStore::new(), Config::default()).await.unwrap();
        let tenant = own_tenant();
        fill(&engine, &tenant, 3, true, |_, _| {}).await.unwrap();
        let claim = Claim { tenant: tenant.clone(), limit: 2, ..Claim::new("w") };
        for claimed in engine.claim(claim, Duration::ZERO).await.unwrap() {
            let complete = Complete { fence: claimed.task.fence(), result: None };
            engine.submit(complete).await.unwrap();
        }
        assert_eq!(completed(&engine, &tenant, 2).await.unwrap(), 2);
        let refusal = completed(&engine, &tenant, 3).await.unwrap_err();
        assert_eq!(refusal.to_string(), "2 of 3 tasks are completed in the store");
    }
}
