use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;
use windlass::{Context, Failure, Worker, WorkerHandle};
use windlass_core::Tenant;
use windlass_engine::{Engine, Error};
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};

use crate::bench::bench_store::own_tenant;
use crate::bench::options::{BenchError, Common};
use crate::bench::process::Usage;
use crate::bench::replay::Replay;
use crate::bench::report::{Progress, Report};
use crate::bench::sleeping::Sleeping;

/// Measure workflows from start to end, with activities that do nothing.
///
/// By default, this many workflows are run, with a limit on concurrent ones. All of them stay in
/// the cache of the worker, and it is an error if a history row is read.
///
/// For a single workflow (`--workflows 1 --steps 2000`) the cost of a step at its start and at its
/// end is reported: from the start of an activity to the start of the next, the mean of the first
/// hundred and of the last hundred.
///
/// With `--sleeping`, workflows sleep until the same time and none stays in the cache: what each
/// costs in memory and in the store while it sleeps, and how long after that time all have ended.
///
/// With `--replay`, a worker resumes a workflow with a long history that it does not cache: how
/// long it takes to load, decode and replay the history, and from a message to the end of the
/// workflow.
#[derive(Debug, Args)]
pub(crate) struct Workflows {
    #[command(flatten)]
    common: Common,
    /// How many workflows are run.
    #[arg(
        long,
        default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    workflows: u32,
    /// How many activities each has.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Run the activities of a workflow in parallel instead of one after the other.
    #[arg(long)]
    fan_out: bool,
    /// How many workflows are open at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    at_once: u32,
    /// How many turns and activities may run at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handlers: u32,
    /// Measure this many workflows that sleep until the same time, not cached.
    #[arg(
        long,
        value_name = "WORKFLOWS",
        conflicts_with_all = ["workflows", "steps", "fan_out", "at_once", "replay"],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    sleeping: Option<u32>,
    /// How many seconds after the start of the first one they are due; all must sleep by then
    /// [default: 5, and one more for every 500]
    #[arg(long, value_name = "SECONDS", requires = "sleeping")]
    due_after: Option<u32>,
    /// Measure a cold replay of a history of this many events.
    #[arg(
        long,
        value_name = "EVENTS",
        conflicts_with_all = ["workflows", "steps", "fan_out", "at_once", "handlers"],
        value_parser = clap::value_parser!(u32).range(2..=1_000_000)
    )]
    replay: Option<u32>,
}

/// Over how many steps the mean is taken, at the start and at the end of a long workflow.
const MANY_STEPS: usize = 100;

/// The start times of activities, if they are recorded.
#[derive(Clone, Debug, Default)]
struct Starts(Option<Arc<Mutex<Vec<Instant>>>>);

pub(super) async fn nothing(_: Context, n: u32) -> Result<u32, Failure> {
    Ok(n)
}

async fn one_by_one(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
    let mut sum = 0;
    for step in 0..steps {
        sum += ctx.activity(nothing, &step).await?;
    }
    Ok(sum)
}

async fn side_by_side(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
    let all = (0..steps).map(|step| ctx.activity(nothing, &step)).collect::<Vec<_>>();
    ctx.join(all).await.into_iter().sum()
}

impl Workflows {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let common = &self.common;
        if let Some(workflows) = self.sleeping {
            let seconds = self.due_after.unwrap_or(5 + workflows / 500);
            let due_after = Duration::from_secs(u64::from(seconds));
            return Sleeping { common, workflows, handlers: self.handlers, due_after }.run().await;
        }
        match self.replay {
            Some(events) => Replay { common, events }.run().await,
            None => self.measure().await,
        }
    }

    async fn measure(&self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let tenant = own_tenant();
        let starts = self.starts();
        let running = self.worker(&engine, &tenant, &starts)?;
        let (stats, usage) = (engine.stats(), Usage::start());
        let start = Instant::now();
        let mut latencies = self.all(&engine, &tenant).await?;
        let took = start.elapsed().as_secs_f64();
        let (after, cpu) = (engine.stats(), usage.cpu_percent());
        running.drain(Duration::from_secs(30)).await;
        let rows = after.history_rows - stats.history_rows;
        if rows > 0 {
            return Err(BenchError::HistoryRead { rows });
        }
        let mut report = Report::default();
        report.set("bench", "workflows");
        report.set("workflows", self.workflows);
        report.set("steps", self.steps);
        report.set("fan_out", self.fan_out);
        report.set("at_once", self.at_once);
        report.number("workflows_per_s", f64::from(self.workflows) / took);
        let steps = f64::from(self.workflows) * f64::from(self.steps);
        report.number("steps_per_s", steps / took);
        report.latencies(&mut latencies);
        starts.add_to(&mut report);
        report.set("history_rows", rows);
        report.batches(stats, after);
        report.maybe("cpu_percent", cpu);
        report.set("durability", store.describe().await?.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    /// Records the steps of a single workflow, if it has enough of them.
    fn starts(&self) -> Starts {
        let alone = self.workflows == 1 && !self.fan_out && self.steps as usize > 2 * MANY_STEPS;
        Starts(alone.then(Arc::default))
    }

    fn worker(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        starts: &Starts,
    ) -> Result<WorkerHandle, Error> {
        let starts = starts.clone();
        let nothing = move |context: Context, n: u32| {
            starts.note();
            nothing(context, n)
        };
        Worker::new(engine.clone(), "bench")
            .tenant(tenant.clone())
            .concurrency(self.handlers as usize)
            .workflow_cache_size(self.at_once as usize)
            .handler("nothing", nothing)
            .workflow_definition(WorkflowDefinition::named("one_by_one", one_by_one))
            .workflow_definition(WorkflowDefinition::named("side_by_side", side_by_side))
            .start()
    }

    /// Runs all of them, up to `at_once` at a time; returns the time of each.
    async fn all(&self, engine: &Engine, tenant: &Tenant) -> Result<Vec<Duration>, BenchError> {
        let progress = Progress::new("workflows", u64::from(self.workflows), self.common.json);
        let kind = if self.fan_out { "side_by_side" } else { "one_by_one" };
        let expected = self.steps * (self.steps - 1) / 2;
        let mut under_way = JoinSet::new();
        let mut latencies = Vec::new();
        let mut remaining = self.workflows;
        while remaining > 0 || !under_way.is_empty() {
            while remaining > 0 && under_way.len() < self.at_once as usize {
                remaining -= 1;
                let (engine, tenant, steps) = (engine.clone(), tenant.clone(), self.steps);
                under_way.spawn(async move {
                    let started_at = Instant::now();
                    let workflow =
                        engine.create(kind).tenant(tenant).payload(&steps).workflow(None);
                    let sum: u32 = workflow.await?.result().await?;
                    Ok::<_, Error>((sum, started_at.elapsed()))
                });
            }
            let Some(ended) = under_way.join_next().await else { break };
            let (sum, took) = ended??;
            assert_eq!(sum, expected, "a workflow gets the results of its activities");
            latencies.push(took);
            progress.add(1);
        }
        Ok(latencies)
    }
}

impl Starts {
    fn note(&self) {
        if let Some(starts) = &self.0 {
            starts.lock().expect("no code panics under this lock").push(Instant::now());
        }
    }

    /// Reports the cost of a step at the start and at the end.
    fn add_to(&self, report: &mut Report) {
        let Some(starts) = &self.0 else { return };
        let starts = starts.lock().expect("no code panics under this lock");
        let [first, .., last] = &starts[..] else { return };
        let each = |took: Duration| took.as_secs_f64() * 1_000_000.0 / MANY_STEPS as f64;
        let first = each(starts[MANY_STEPS] - *first);
        let last = each(*last - starts[starts.len() - 1 - MANY_STEPS]);
        report.number("first_steps_us", first);
        report.number("last_steps_us", last);
        report.number("last_to_first", last / first);
    }
}
