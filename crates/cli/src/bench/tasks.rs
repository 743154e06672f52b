use clap::Args;

use crate::bench::bench_store::{BenchStore, own_tenant};
use crate::bench::fleet::Fleet;
use crate::bench::load::Load;
use crate::bench::options::{BenchError, Common};
use crate::bench::process::Usage;
use crate::bench::report::Report;

/// Measure concurrent callers, each: create a task, claim one, complete it.
///
/// All round trips to a server are counted, including the payloads of claims.
#[derive(Debug, Args)]
pub(crate) struct Tasks {
    #[command(flatten)]
    common: Common,
    /// The number of concurrent callers.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// The duration.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// How many engines share the callers, each with its own store handle [default: 1; without
    /// batching on Postgres 16, so that 16 transactions run at once]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    engines: Option<u32>,
    /// How many connections each engine has to its server [default: as in the URL; without batching
    /// 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    connections: Option<u32>,
    /// Measure with batching and without, one after the other, and print the ratio.
    #[arg(long, conflicts_with = "unbatched")]
    compare: bool,
}

/// Concurrent transactions without batching, if the store supports more than one.
const UNBATCHED_ENGINES: u32 = 16;

impl Tasks {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        if !self.compare {
            self.measure(self.common.unbatched).await?.print(self.common.json);
            return Ok(());
        }
        let batched = self.measure(false).await?;
        let unbatched = self.measure(true).await?;
        let mut report = Report::default();
        let rate = |of: &Report| of.value("cycles_per_s");
        report.set("bench", "tasks");
        report.number("batched_per_s", rate(&batched));
        report.number("unbatched_per_s", rate(&unbatched));
        report.number("ratio", rate(&batched) / rate(&unbatched));
        report.within("batched", batched);
        report.within("unbatched", unbatched);
        report.print(self.common.json);
        Ok(())
    }

    async fn measure(&self, unbatched: bool) -> Result<Report, BenchError> {
        let mut bench_store = self.common.bench_store()?;
        let bare = unbatched && bench_store.has_server();
        let engines = self.engines.unwrap_or(if bare { UNBATCHED_ENGINES } else { 1 });
        if let Some(connections) = self.connections.or(bare.then_some(1)) {
            bench_store = bench_store.with("connections", &connections.to_string());
        }
        let mut config = Common { unbatched, ..self.common.clone() }.config();
        config.queue_commands = config.queue_commands.max(self.callers as usize);
        config.queue_rows = config.queue_rows.max(self.callers as usize);
        let fleet = Fleet::start(&bench_store, &config, engines).await?;
        let (callers, seconds) = (self.callers, self.seconds);
        let json = self.common.json;
        let load = Load { fleet: &fleet, tenant: own_tenant(), callers, seconds, json };
        load.warm_up().await?;
        let (before, usage) = (fleet.read().await?, Usage::start());
        let mut cycles = load.run().await?;
        let (elapsed, cpu) = (usage.elapsed().as_secs_f64(), usage.cpu_percent());
        let after = fleet.read().await?;
        load.check(&cycles).await?;
        let mut report = Report::default();
        report.set("bench", "tasks");
        report.set("callers", callers);
        report.set("batched", !unbatched);
        report.set("engines", engines);
        connections(&mut report, &bench_store, engines);
        report.number("cycles_per_s", cycles.latencies.len() as f64 / elapsed);
        let commands = after.stats.commands - before.stats.commands;
        report.number("commands_per_s", commands as f64 / elapsed);
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

fn connections(report: &mut Report, bench_store: &BenchStore, engines: u32) {
    if let Some(each) = bench_store.connections() {
        report.set("connections", u64::from(engines) * each as u64);
    }
}
