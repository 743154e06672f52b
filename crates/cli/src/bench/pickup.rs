use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::mpsc;
use windlass::{Context, Failure, Worker};
use windlass_core::command::Create;
use windlass_core::{TaskId, Tenant};
use windlass_engine::{Engine, Error};

use crate::bench::bench_store::{KIND, own_tenant, some_task};
use crate::bench::options::{BenchError, Common};
use crate::bench::process::Usage;
use crate::bench::report::{Progress, Report};

/// Measure the time from the due arrival of a task to the first line of its handler.
///
/// Tasks arrive at a steady rate, even if earlier ones are still open; a task that is created late
/// counts from its due time. The worker is in the same process and waits for them.
#[derive(Debug, Args)]
pub(crate) struct Pickup {
    #[command(flatten)]
    common: Common,
    /// How many tasks arrive per second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// The duration.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// How many handlers may run at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handlers: u32,
}

/// The first commits of a database grow its file, which is not to be measured.
const WARM_UP: u32 = 20;

type Started = mpsc::UnboundedReceiver<(TaskId, Instant)>;

impl Pickup {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let tenant = own_tenant();
        let (sender, mut started) = mpsc::unbounded_channel();
        let worker = Worker::new(engine.clone(), "bench")
            .tenant(tenant.clone())
            .concurrency(self.handlers as usize)
            .raw_handler(KIND, move |context: Context| {
                let sent = sender.send((context.id().clone(), Instant::now()));
                std::future::ready(sent.map(|()| None).map_err(Failure::transient))
            });
        let running = worker.start()?;
        for _ in 0..WARM_UP {
            create(&engine, &tenant).await?;
            started.recv().await;
        }
        let (stats, usage) = (engine.stats(), Usage::start());
        let (mut latencies, latest) = self.measure(&engine, &tenant, &mut started).await?;
        let (after, cpu) = (engine.stats(), usage.cpu_percent());
        running.drain(Duration::from_secs(10)).await;
        let mut report = Report::default();
        report.set("bench", "pickup");
        report.set("rate_per_s", self.rate);
        report.set("tasks", latencies.len());
        report.latencies(&mut latencies);
        let most = latencies.last().copied().unwrap_or_default();
        report.number("max_ms", most.as_secs_f64() * 1_000.0);
        report.number("latest_arrival_ms", latest.as_secs_f64() * 1_000.0);
        report.batches(stats, after);
        report.maybe("cpu_percent", cpu);
        report.set("durability", store.describe().await?.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    /// The latency of every task, and the largest delay of an arrival.
    async fn measure(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        started: &mut Started,
    ) -> Result<(Vec<Duration>, Duration), BenchError> {
        let tasks = self.rate * self.seconds;
        let progress = Progress::new("tasks", u64::from(tasks), self.common.json);
        let start = Instant::now();
        let mut latest = Duration::ZERO;
        let mut arrivals = Vec::new();
        for n in 0..tasks {
            let at = start + Duration::from_secs(n.into()) / self.rate;
            tokio::time::sleep_until(at.into()).await;
            latest = latest.max(at.elapsed());
            let (engine, tenant) = (engine.clone(), tenant.clone());
            let arrival = tokio::spawn(async move { create(&engine, &tenant).await });
            arrivals.push((at, arrival));
            progress.add(1);
        }
        let mut created = std::collections::BTreeMap::new();
        for (at, arrival) in arrivals {
            created.insert(arrival.await??, at);
        }
        let mut latencies = Vec::new();
        while !created.is_empty() {
            let Some((id, at)) = started.recv().await else { break };
            latencies.extend(created.remove(&id).map(|due| at - due));
        }
        Ok((latencies, latest))
    }
}

async fn create(engine: &Engine, tenant: &Tenant) -> Result<TaskId, Error> {
    let task = some_task();
    let id = task.id.clone();
    engine.submit(Create { tenant: tenant.clone(), tasks: vec![task] }).await?;
    Ok(id)
}
