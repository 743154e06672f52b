use clap::Args;
use windlass_core::LaneName;
use windlass_core::command::LimitLane;

use crate::bench::bench_store::{BenchStore, own_tenant};
use crate::bench::fleet::Fleet;
use crate::bench::load::Load;
use crate::bench::options::{BenchError, Common};
use crate::bench::process::Usage;
use crate::bench::report::Report;

/// Measure engines that contend for one lane with a limit, a record that every claim and every
/// completion writes.
///
/// By default the engines wait for a row lock on such a record. On Postgres the same load is
/// measured again with optimistic checks: the loser of a conflict retries.
#[derive(Debug, Args)]
pub(crate) struct Contended {
    #[command(flatten)]
    common: Common,
    /// The number of engines, each with its own store handle.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    writers: u32,
    /// The number of concurrent callers, spread over the engines.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// How many tasks of the lane may run at once [default: one per caller]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: Option<u32>,
    /// The duration of each measurement.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Contended {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let has_server = bench_store.has_server();
        let waiting = self.measure(bench_store).await?;
        let mut report = Report::default();
        report.set("bench", "contended");
        report.set("writers", self.writers);
        report.set("callers", self.callers);
        report.set("limit", self.limit());
        report.number("waiting_per_s", waiting.value("cycles_per_s"));
        report.number("waiting_conflicts", waiting.value("conflicts"));
        if has_server {
            let bench_store = self.common.bench_store()?.with("contended", "optimistic");
            let optimistic = self.measure(bench_store).await?;
            let rate = |of: &Report| of.value("cycles_per_s");
            report.number("optimistic_per_s", rate(&optimistic));
            report.number("optimistic_conflicts", optimistic.value("conflicts"));
            report.number("ratio", rate(&waiting) / rate(&optimistic));
            report.within("optimistic", optimistic);
        }
        report.within("waiting", waiting);
        report.print(self.common.json);
        Ok(())
    }

    fn limit(&self) -> u32 {
        self.limit.unwrap_or(self.callers)
    }

    async fn measure(&self, bench_store: BenchStore) -> Result<Report, BenchError> {
        let fleet = Fleet::start(&bench_store, &self.common.config(), self.writers).await?;
        let tenant = own_tenant();
        let (lane, limit) = (LaneName::default(), Some(self.limit()));
        let first = fleet.first();
        let (callers, seconds, json) = (self.callers, self.seconds, self.common.json);
        let load = Load { fleet: &fleet, tenant: tenant.clone(), callers, seconds, json };
        // The first task creates the lane.
        load.warm_up().await?;
        first.submit(LimitLane { tenant: tenant.clone(), lane: lane.clone(), limit }).await?;
        let (before, usage) = (fleet.read().await?, Usage::start());
        let mut cycles = load.run().await?;
        let (elapsed, cpu) = (usage.elapsed().as_secs_f64(), usage.cpu_percent());
        let after = fleet.read().await?;
        load.check(&cycles).await?;
        // The count of running tasks in the contended record must be exact.
        let limit = first.lane(&tenant, &lane).await?.and_then(|lane| lane.concurrency);
        let running = limit.map_or(0, |limit| limit.running);
        if cycles.stalls == 0 && running != 0 {
            return Err(BenchError::ConcurrencyLimit { running });
        }
        let mut report = Report::default();
        report.number("cycles_per_s", cycles.latencies.len() as f64 / elapsed);
        report.work(&before, &after);
        report.latencies(&mut cycles.latencies);
        report.set("stalls", cycles.stalls);
        report.set("conflict_errors", cycles.conflict_errors);
        report.maybe("cpu_percent", cpu);
        report.set("durability", after.durability);
        fleet.shutdown().await?;
        Ok(report)
    }
}
