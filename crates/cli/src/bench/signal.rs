use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::mpsc;
use windlass::{Context, WaitFor, Worker};
use windlass_core::{PublicState, TaskId, Tenant};
use windlass_engine::{Engine, Error};

use crate::bench::bench_store::{KIND, fill, own_tenant};
use crate::bench::options::{BenchError, Common};
use crate::bench::process::Usage;
use crate::bench::report::{Progress, Report};

/// Measure the time from a signal to the first line of the resumed handler.
///
/// Handlers suspend their tasks until a signal. Then concurrent callers send all signals at once; a
/// signal counts from when its caller sends it.
#[derive(Debug, Args)]
pub(crate) struct SignalCost {
    #[command(flatten)]
    common: Common,
    /// How many tasks are suspended, each for one signal.
    #[arg(
        long,
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    tasks: u32,
    /// How many callers send the signals.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    callers: u32,
    /// How many handlers may run at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handlers: u32,
}

/// Longer than a lease: later arrivals are not expected.
const STALLED: Duration = Duration::from_secs(90);

/// A run of a handler: its task, its start, and whether it was resumed.
type Run = (TaskId, Instant, bool);

impl SignalCost {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let (tenant, expiry_ms) = (own_tenant(), bench_store.expiry_ms());
        let (sender, mut runs) = mpsc::unbounded_channel();
        let running = self.worker(&engine, &tenant, sender).start()?;
        let tasks = u64::from(self.tasks);
        let shape = move |_, task: &mut windlass_core::command::NewTask| {
            task.deadline_ms = expiry_ms;
        };
        fill(std::slice::from_ref(&engine), &tenant, tasks, self.common.json, shape).await?;
        let ids = suspended(&engine, &tenant, &mut runs, self.tasks).await?;
        let (stats, usage) = (engine.stats(), Usage::start());
        let start = Instant::now();
        let sent = send(&engine, &tenant, ids, self.callers).await?;
        let mut latencies = self.started(&mut runs, &sent).await?;
        let took = start.elapsed();
        let (after, cpu) = (engine.stats(), usage.cpu_percent());
        running.drain(Duration::from_secs(30)).await;
        let counts = engine.count_by_state(&tenant).await?;
        let completed = counts.get(PublicState::Completed.as_str()).copied().unwrap_or_default();
        if completed != tasks {
            return Err(BenchError::NotDrained { completed, expected: tasks });
        }
        let mut report = Report::default();
        report.set("bench", "signal");
        report.set("tasks", self.tasks);
        report.set("callers", self.callers);
        report.set("handlers", self.handlers);
        report.set("resumed", latencies.len());
        report.latencies(&mut latencies);
        let most = latencies.last().copied().unwrap_or_default();
        report.number("max_ms", most.as_secs_f64() * 1_000.0);
        report.number("signals_per_s", f64::from(self.tasks) / took.as_secs_f64());
        report.batches(stats, after);
        report.maybe("cpu_percent", cpu);
        report.set("durability", store.describe().await?.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    fn worker(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        sender: mpsc::UnboundedSender<Run>,
    ) -> Worker {
        let handler = move |context: Context| {
            let sender = sender.clone();
            async move {
                let is_resumed = context.resumption().is_some();
                sender.send((context.id().clone(), Instant::now(), is_resumed))?;
                if !is_resumed {
                    context.suspend(WaitFor::signal("go")).await?;
                }
                Ok(None)
            }
        };
        Worker::new(engine.clone(), "bench")
            .tenant(tenant.clone())
            .concurrency(self.handlers as usize)
            .raw_handler(KIND, handler)
    }

    /// The time from each signal to the resumed handler.
    async fn started(
        &self,
        runs: &mut mpsc::UnboundedReceiver<Run>,
        sent: &BTreeMap<TaskId, Instant>,
    ) -> Result<Vec<Duration>, BenchError> {
        let progress = Progress::new("resuming", u64::from(self.tasks), self.common.json);
        let mut latencies = Vec::new();
        while latencies.len() < sent.len() {
            let next = tokio::time::timeout(STALLED, runs.recv()).await.ok().flatten();
            let Some((id, at, is_resumed)) = next else {
                let (completed, expected) = (latencies.len() as u64, u64::from(self.tasks));
                return Err(BenchError::NotDrained { completed, expected });
            };
            if is_resumed {
                latencies.extend(sent.get(&id).map(|sent| at.saturating_duration_since(*sent)));
                progress.add(1);
            }
        }
        Ok(latencies)
    }
}

/// Waits until every task has run and is suspended.
async fn suspended(
    engine: &Engine,
    tenant: &Tenant,
    runs: &mut mpsc::UnboundedReceiver<Run>,
    tasks: u32,
) -> Result<Vec<TaskId>, BenchError> {
    let mut ids = Vec::new();
    while ids.len() < tasks as usize {
        let Some((id, _, _)) = runs.recv().await else { break };
        ids.push(id);
    }
    let start = Instant::now();
    loop {
        let counts = engine.count_by_state(tenant).await?;
        let there = counts.get(PublicState::Suspended.as_str()).copied().unwrap_or_default();
        if there == u64::from(tasks) {
            return Ok(ids);
        }
        if start.elapsed() > STALLED {
            return Err(BenchError::Backlog { there, expected: u64::from(tasks) });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends each task its signal; returns the time of each.
async fn send(
    engine: &Engine,
    tenant: &Tenant,
    ids: Vec<TaskId>,
    callers: u32,
) -> Result<BTreeMap<TaskId, Instant>, BenchError> {
    let (ids, next) = (Arc::new(ids), Arc::new(AtomicUsize::new(0)));
    let mut sending = Vec::new();
    for _ in 0..callers {
        let (engine, tenant) = (engine.clone(), tenant.clone());
        let (ids, next) = (ids.clone(), next.clone());
        sending.push(tokio::spawn(async move {
            let mut sent = Vec::new();
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                sent.push((id.clone(), Instant::now()));
                engine.signal(id.clone(), "go").tenant(tenant.clone()).source("bench").await?;
            }
            Ok::<_, Error>(sent)
        }));
    }
    let mut all = BTreeMap::new();
    for caller in sending {
        all.extend(caller.await??);
    }
    Ok(all)
}
