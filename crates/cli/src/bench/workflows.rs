use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;
use windlass::{Context, Failure, Worker};
use windlass_core::Tenant;
use windlass_engine::{Engine, Error};
use windlass_worker::workflow::{Program, StepError, Workflow};

use crate::bench::options::{BenchError, Common};
use crate::bench::place::own_tenant;
use crate::bench::process::Usage;
use crate::bench::report::{Progress, Report};

/// Workflows from their start to their end, with activities that do nothing.
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
    /// The activities of a workflow go side by side instead of one after the other.
    #[arg(long)]
    fan_out: bool,
    /// How many workflows are under way at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    at_once: u32,
    /// How many turns and activities may run at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handlers: u32,
}

async fn nothing(_: Context, n: u32) -> Result<u32, Failure> {
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
        let place = self.common.place()?;
        let (engine, store) = place.start(self.common.config()).await?;
        let tenant = own_tenant();
        let running = Worker::new(engine.clone(), "bench")
            .tenant(tenant.clone())
            .concurrency(self.handlers as usize)
            .activity(nothing)
            .program(Program::named("one_by_one", one_by_one))
            .program(Program::named("side_by_side", side_by_side))
            .start()?;
        let (stats, usage) = (engine.stats(), Usage::start());
        let begun = Instant::now();
        let mut latencies = self.all(&engine, &tenant).await?;
        let took = begun.elapsed().as_secs_f64();
        let (after, cpu) = (engine.stats(), usage.cpu_percent());
        running.drain(Duration::from_secs(30)).await;
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
        report.batches(stats, after);
        report.maybe("cpu_percent", cpu);
        report.set("durability", store.describe().await?.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    /// Runs all of them, so many at once; says how long each took.
    async fn all(&self, engine: &Engine, tenant: &Tenant) -> Result<Vec<Duration>, BenchError> {
        let progress = Progress::new("workflows", u64::from(self.workflows), self.common.json);
        let kind = if self.fan_out { "side_by_side" } else { "one_by_one" };
        let expected = self.steps * (self.steps - 1) / 2;
        let mut under_way = JoinSet::new();
        let mut latencies = Vec::new();
        let mut left = self.workflows;
        while left > 0 || !under_way.is_empty() {
            while left > 0 && under_way.len() < self.at_once as usize {
                left -= 1;
                let (engine, tenant, steps) = (engine.clone(), tenant.clone(), self.steps);
                under_way.spawn(async move {
                    let begun = Instant::now();
                    let start = engine.create(kind).tenant(tenant).payload(&steps).workflow(None);
                    let sum: u32 = start.await?.result().await?;
                    Ok::<_, Error>((sum, begun.elapsed()))
                });
            }
            let Some(ended) = under_way.join_next().await else { break };
            let (sum, took) = ended??;
            assert_eq!(sum, expected, "a workflow has the results of its activities");
            latencies.push(took);
            progress.add(1);
        }
        Ok(latencies)
    }
}
