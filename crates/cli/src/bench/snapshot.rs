use clap::Args;
use tokio_postgres::Client;
use windlass::StoreUrl;

use crate::bench::bench_store::own_tenant;
use crate::bench::fleet::Fleet;
use crate::bench::load::Load;
use crate::bench::options::{BenchError, Common};
use crate::bench::report::Report;

/// Measure the load of `tasks` on Postgres while another session holds an old snapshot, as a report
/// or a backup does: VACUUM cannot remove rows that died since then.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    #[command(flatten)]
    common: Common,
    /// The number of concurrent callers.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// The duration. The first ten seconds are compared with the last ten.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    seconds: u64,
    /// Measure the same load without the snapshot first.
    #[arg(long)]
    compare: bool,
}

const WINDOW: u64 = 10;

impl Snapshot {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        if !bench_store.has_server() {
            return Err(BenchError::NoServer);
        }
        let mut report = Report::default();
        report.set("bench", "snapshot");
        report.set("callers", self.callers);
        report.set("seconds", self.seconds);
        if self.compare {
            report.within("without", self.measure().await?);
        }
        let held = Held::hold(bench_store.url()).await?;
        let found = self.measure().await?;
        held.end().await?;
        for name in ["first_per_s", "last_per_s", "ratio"] {
            report.number(name, found.value(name));
        }
        report.within("held", found);
        report.print(self.common.json);
        Ok(())
    }

    async fn measure(&self) -> Result<Report, BenchError> {
        let bench_store = self.common.bench_store()?;
        let fleet = Fleet::start(&bench_store, &self.common.config(), 1).await?;
        let (callers, seconds, json) = (self.callers, self.seconds, self.common.json);
        let load = Load { fleet: &fleet, tenant: own_tenant(), callers, seconds, json };
        load.warm_up().await?;
        let before = fleet.read().await?;
        let mut cycles = load.run().await?;
        let after = fleet.read().await?;
        load.check(&cycles).await?;
        // With a short duration, the two windows do not overlap.
        let window = usize::try_from(WINDOW.min(seconds / 2)).unwrap_or(1);
        let mut each = std::mem::take(&mut cycles.each_second);
        each.resize(usize::try_from(seconds).unwrap_or(usize::MAX), 0);
        let rate = |of: &[u64]| of.iter().sum::<u64>() as f64 / window as f64;
        let (first, last) = (rate(&each[..window]), rate(&each[each.len() - window..]));
        let mut report = Report::default();
        report.number("first_per_s", first);
        report.number("last_per_s", last);
        report.number("ratio", last / first);
        report.set("each_second", each);
        report.work(&before, &after);
        report.latencies(&mut cycles.latencies);
        report.set("stalls", cycles.stalls);
        report.set("durability", after.durability);
        fleet.shutdown().await?;
        Ok(report)
    }
}

/// A session with a snapshot, and with a transaction id, which holds back VACUUM.
struct Held(Client);

impl Held {
    async fn hold(url: &StoreUrl) -> Result<Self, BenchError> {
        let (client, _) = windlass_store_postgres::connect(&url.expose_secret()).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()";
        client.batch_execute(begin).await.map_err(BenchError::Session)?;
        Ok(Self(client))
    }

    /// Fails if the server has ended the session early.
    async fn end(self) -> Result<(), BenchError> {
        self.0.batch_execute("COMMIT").await.map_err(BenchError::Session)
    }
}
