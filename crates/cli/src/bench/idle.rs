use std::time::Duration;

use clap::Args;
use windlass_core::LaneName;
use windlass_core::command::Claim;

use crate::bench::bench_store::{fill, own_tenant};
use crate::bench::options::{BenchError, Common};
use crate::bench::process::{Usage, memory_mib};
use crate::bench::report::{Progress, Report};

/// Measure an idle engine.
#[derive(Debug, Args)]
pub(crate) struct Idle {
    #[command(flatten)]
    common: Common,
    /// How many claims wait for a task that never arrives.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    claims: u32,
    /// How many tasks wait in a lane that is not claimed from.
    #[arg(long, default_value_t = 0)]
    backlog: u64,
    /// The duration.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Idle {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let tenant = own_tenant();
        let expiry_ms = bench_store.expiry_ms();
        fill(
            std::slice::from_ref(&engine),
            &tenant,
            self.backlog,
            self.common.json,
            move |_, task| {
                task.lane = LaneName::new("elsewhere");
                task.deadline_ms = expiry_ms;
            },
        )
        .await?;
        let claims: Vec<_> = (0..self.claims)
            .map(|n| {
                let engine = engine.clone();
                let tenant = tenant.clone();
                let claim = Claim { tenant, ..Claim::new(format!("worker-{n}")) };
                tokio::spawn(async move { engine.claim(claim, Duration::from_secs(7_200)).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (commits, stats, usage) =
            (store.describe().await?.commits, engine.stats(), Usage::start());
        let progress = Progress::new("seconds", self.seconds, self.common.json);
        for _ in 0..self.seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            progress.add(1);
        }
        drop(progress);
        let cpu = usage.cpu_percent();
        let description = store.describe().await?;
        let mut report = Report::default();
        report.set("bench", "idle");
        report.set("waiting_claims", self.claims);
        report.set("backlog", self.backlog);
        report.set("commits", description.commits - commits);
        report.set("batches", engine.stats().batches - stats.batches);
        report.maybe("cpu_percent", cpu);
        report.maybe("memory_mib", memory_mib());
        report.set("durability", description.durability);
        claims.iter().for_each(tokio::task::JoinHandle::abort);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }
}
