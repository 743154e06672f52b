use std::time::{Duration, Instant};

use clap::Args;
use windlass_core::command::{Claim, Complete, Create};
use windlass_engine::{Engine, Error};

use crate::bench::options::{BenchError, Common};
use crate::bench::place::some_task;
use crate::bench::process::Usage;
use crate::bench::report::{Progress, Report};

/// Callers side by side, each: create a task, claim one, complete it.
#[derive(Debug, Args)]
pub(crate) struct Tasks {
    #[command(flatten)]
    common: Common,
    /// How many callers at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// For how long.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Tasks {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let place = self.common.place()?;
        let (engine, store) = place.start(self.common.config()).await?;
        warm_up(&engine).await?;
        let (commits, stats, usage) =
            (store.describe().await?.commits, engine.stats(), Usage::start());
        let mut latencies = self.cycles(&engine).await?;
        let (elapsed, cpu) = (usage.elapsed().as_secs_f64(), usage.cpu_percent());
        let description = store.describe().await?;
        let after = engine.stats();
        let mut report = Report::default();
        report.set("bench", "tasks");
        report.set("callers", self.callers);
        report.set("batched", !self.common.unbatched);
        report.number("cycles_per_s", latencies.len() as f64 / elapsed);
        report.number("commands_per_s", (after.commands - stats.commands) as f64 / elapsed);
        report.batches(stats, after);
        report.latencies(&mut latencies);
        report.set("commits", description.commits - commits);
        report.maybe("cpu_percent", cpu);
        report.set("durability", description.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    async fn cycles(&self, engine: &Engine) -> Result<Vec<Duration>, BenchError> {
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let callers: Vec<_> =
            (0..self.callers).map(|_| tokio::spawn(call(engine.clone(), until))).collect();
        let progress = Progress::new("seconds", self.seconds, self.common.json);
        for _ in 0..self.seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            progress.add(1);
        }
        let mut latencies = Vec::new();
        for caller in callers {
            latencies.extend(caller.await??);
        }
        Ok(latencies)
    }
}

/// The first commits of a database grow its file; they are not what is measured.
async fn warm_up(engine: &Engine) -> Result<(), Error> {
    for _ in 0..20 {
        cycle(engine).await?;
    }
    Ok(())
}

async fn call(engine: Engine, until: Instant) -> Result<Vec<Duration>, Error> {
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let started = Instant::now();
        cycle(&engine).await?;
        latencies.push(started.elapsed());
    }
    Ok(latencies)
}

async fn cycle(engine: &Engine) -> Result<(), Error> {
    engine.submit(Create::one(some_task())).await?;
    for claimed in engine.claim(Claim::new("bench"), Duration::from_secs(60)).await? {
        engine.submit(Complete { fence: claimed.task.fence(), result: None }).await?;
    }
    Ok(())
}
