use std::time::{Duration, Instant};

use clap::Args;
use windlass_core::Tenant;
use windlass_core::command::{Claim, Complete, Create};
use windlass_engine::{Engine, Error};

use crate::bench::options::{BenchError, Common};
use crate::bench::place::{own_tenant, some_task};
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
        let mut config = self.common.config();
        config.queue_commands = config.queue_commands.max(self.callers as usize);
        config.queue_rows = config.queue_rows.max(self.callers as usize);
        let (engine, store) = place.start(config).await?;
        let tenant = own_tenant();
        warm_up(&engine, &tenant).await?;
        let (commits, stats, usage) =
            (store.describe().await?.commits, engine.stats(), Usage::start());
        let mut latencies = self.cycles(&engine, &tenant).await?;
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

    async fn cycles(&self, engine: &Engine, tenant: &Tenant) -> Result<Vec<Duration>, BenchError> {
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let callers: Vec<_> = (0..self.callers)
            .map(|_| tokio::spawn(call(engine.clone(), tenant.clone(), until)))
            .collect();
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
async fn warm_up(engine: &Engine, tenant: &Tenant) -> Result<(), Error> {
    for _ in 0..20 {
        cycle(engine, tenant).await?;
    }
    Ok(())
}

async fn call(engine: Engine, tenant: Tenant, until: Instant) -> Result<Vec<Duration>, Error> {
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let started = Instant::now();
        cycle(&engine, &tenant).await?;
        latencies.push(started.elapsed());
    }
    Ok(latencies)
}

async fn cycle(engine: &Engine, tenant: &Tenant) -> Result<(), Error> {
    engine.submit(Create { tenant: tenant.clone(), tasks: vec![some_task()] }).await?;
    let claim = Claim { tenant: tenant.clone(), ..Claim::new("bench") };
    for claimed in engine.claim(claim, Duration::from_secs(60)).await? {
        engine.submit(Complete { fence: claimed.task.fence(), result: None }).await?;
    }
    Ok(())
}
