use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use windlass::{Worker, WorkerHandle};
use windlass_core::{Lifecycle, PublicState, Table, Task, Tenant, Timestamp, limits};
use windlass_engine::{Engine, Error, TaskFilter};
use windlass_store::{Query, Store};
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};

use crate::bench::bench_store::own_tenant;
use crate::bench::options::{BenchError, Common};
use crate::bench::process::{Usage, memory_mib};
use crate::bench::report::{Progress, Report};

/// How many are started at once.
const MAX_CONCURRENT_STARTS: usize = 256;
/// How many are run before the measurement.
const WARM_UP: u32 = 1_000;
/// How many workflows are sampled for the size of their rows.
const SAMPLE: usize = 100;
/// How often progress is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longer than any backoff: later arrivals are not expected.
const STALLED: Duration = Duration::from_secs(90);

/// Workflows that sleep until the same time.
#[derive(Debug)]
pub(super) struct Sleeping<'c> {
    pub(super) common: &'c Common,
    pub(super) workflows: u32,
    pub(super) handlers: u32,
    /// How long after the start of the first one all are due.
    pub(super) due_after: Duration,
}

/// Sleeps until a time in microseconds since 1970.
async fn sleeps(ctx: Workflow, until: i64) -> Result<(), StepError> {
    ctx.sleep_until(Timestamp::from_micros(until)).await
}

impl Sleeping<'_> {
    pub(super) async fn run(&self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let tenant = own_tenant();
        let running = self.worker(&engine, &tenant)?;
        self.warm_up(&engine).await?;
        let (memory, bytes, start) = (memory_mib(), bench_store.file_bytes(), Instant::now());
        let due = engine.now().plus_ms(u64::try_from(self.due_after.as_millis()).unwrap_or(0));
        self.start(&engine, &tenant, due, self.workflows).await?;
        self.until(&engine, &tenant, PublicState::Suspended, Some(due)).await?;
        let fell_asleep = start.elapsed().as_secs_f64();
        let mut report = Report::default();
        report.set("bench", "workflows");
        report.set("sleeping", self.workflows);
        report.number("suspended_per_s", f64::from(self.workflows) / fell_asleep);
        let each = |bytes: f64| bytes / f64::from(self.workflows);
        let mib = memory_mib().zip(memory).map(|(after, before)| after - before);
        report.maybe("memory_mib_before", memory);
        report.maybe("memory_bytes_each", mib.map(|mib| each(mib * 1_024.0 * 1_024.0)));
        let grown = bench_store.file_bytes().zip(bytes).map(|(after, before)| after - before);
        report.maybe("file_bytes_each", grown.map(each));
        report.number("row_bytes_each", row_bytes(&engine, &*store, &tenant).await?);
        let stats = engine.stats();
        tokio::time::sleep(Duration::from_millis(engine.now().ms_until(due))).await;
        let usage = Usage::start();
        self.until(&engine, &tenant, PublicState::Completed, None).await?;
        let cpu = usage.cpu_percent();
        let mut late = lateness(&engine, &tenant, due).await?;
        report.latencies(&mut late);
        let last = late.last().copied().unwrap_or_default().as_secs_f64();
        report.number("all_resumed_after_s", last);
        report.number("resumed_per_s", f64::from(self.workflows) / last);
        report.set("history_rows", engine.stats().history_rows - stats.history_rows);
        report.batches(stats, engine.stats());
        report.maybe("cpu_percent", cpu);
        report.set("durability", store.describe().await?.durability);
        running.drain(Duration::from_secs(30)).await;
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    /// The worker caches no workflows.
    fn worker(&self, engine: &Engine, tenant: &Tenant) -> Result<WorkerHandle, Error> {
        Worker::new(engine.clone(), "bench")
            .tenant(tenant.clone())
            .concurrency(self.handlers as usize)
            .workflow_cache_size(0)
            .workflow_definition(WorkflowDefinition::named("sleeps", sleeps))
            .start()
    }

    /// One-time loads and allocations happen before the measurement.
    async fn warm_up(&self, engine: &Engine) -> Result<(), BenchError> {
        let tenant = own_tenant();
        let running = self.worker(engine, &tenant)?;
        let count = self.workflows.min(WARM_UP);
        self.start(engine, &tenant, Timestamp::from_micros(0), count).await?;
        running.drain(Duration::from_secs(30)).await;
        Ok(())
    }

    async fn start(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        due: Timestamp,
        count: u32,
    ) -> Result<(), BenchError> {
        let progress = Progress::new("starting", u64::from(count), self.common.json);
        let (mut starting, mut remaining) = (JoinSet::new(), count);
        while remaining > 0 || !starting.is_empty() {
            while remaining > 0 && starting.len() < MAX_CONCURRENT_STARTS {
                remaining -= 1;
                let (engine, tenant) = (engine.clone(), tenant.clone());
                starting.spawn(async move {
                    let start = engine.create("sleeps").tenant(tenant).payload(&due.micros());
                    start.workflow(None).await.map(drop)
                });
            }
            if let Some(started) = starting.join_next().await {
                started??;
                progress.add(1);
            }
        }
        Ok(())
    }

    /// Waits until all are in this state, at most until a time.
    async fn until(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        state: PublicState,
        until: Option<Timestamp>,
    ) -> Result<(), BenchError> {
        let (start, expected) = (Instant::now(), u64::from(self.workflows));
        loop {
            let counts = engine.count_by_state(tenant).await?;
            let there = counts.get(state.as_str()).copied().unwrap_or_default();
            let late = until.is_some_and(|until| engine.now() >= until);
            if there == expected && !late {
                return Ok(());
            }
            if late {
                return Err(BenchError::Awake { expected });
            }
            if start.elapsed() > STALLED + self.due_after {
                return Err(BenchError::NotDrained { completed: there, expected });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The stored size of a sleeping workflow: its encoded records and its payloads.
async fn row_bytes(engine: &Engine, store: &dyn Store, tenant: &Tenant) -> Result<f64, BenchError> {
    let sample = engine.tasks(tenant, &TaskFilter::default(), None, SAMPLE).await?;
    let mut bytes = 0;
    for task in &sample {
        let prefix = vec![(&task.tenant).into(), (&task.id).into()];
        for table in [Table::Task, Table::Mailbox, Table::Message] {
            let query = Query { prefix: prefix.clone(), ..Query::all(table, SAMPLE) };
            let rows = store.query(&query).await?;
            bytes += rows.iter().map(|row| row.body.len()).sum::<usize>();
        }
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        let keys = (0..turns).map(|turn| task.turn_key(turn)).chain(task.input_key());
        let payloads = store.payloads(&keys.collect::<Vec<_>>()).await?;
        bytes += payloads.iter().flatten().map(|payload| payload.bytes.len()).sum::<usize>();
    }
    Ok(bytes as f64 / sample.len().max(1) as f64)
}

/// How long after the due time they ended, by the times in the store.
async fn lateness(
    engine: &Engine,
    tenant: &Tenant,
    due: Timestamp,
) -> Result<Vec<Duration>, BenchError> {
    let late = |task: &Task| match &task.lifecycle {
        Lifecycle::Completed { at } => Some(Duration::from_millis(due.ms_until(*at))),
        _ => None,
    };
    let page = usize::try_from(limits::PAGE.max).unwrap_or(usize::MAX);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let filter = TaskFilter::default();
        let tasks = engine.tasks(tenant, &filter, after.as_ref(), page).await?;
        let Some(last) = tasks.last() else { return Ok(all) };
        after = Some(last.id.clone());
        all.extend(tasks.iter().filter_map(|task| late(task)));
    }
}
