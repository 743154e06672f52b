//! The same orchestrations for any duroxide provider, and how long they take.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{
    ActivityContext, Client, Event, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus,
};
use serde_json::{Value, json};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Longer than any run takes.
const NEVER: Duration = Duration::from_secs(1_800);

/// The work and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) file: PathBuf,
    workflows: usize,
    steps: usize,
    fan_out: bool,
    at_once: usize,
    dispatchers: usize,
    workers: usize,
}

/// Removes a flag from the arguments and returns whether it was given.
pub(crate) fn take(args: &mut Vec<String>, option: &str) -> bool {
    let found = args.iter().position(|arg| arg == option);
    found.map(|at| args.remove(at)).is_some()
}

fn number(args: &mut Vec<String>, option: &str, otherwise: usize) -> Result<usize, Failure> {
    let Some(at) = args.iter().position(|arg| arg == option) else { return Ok(otherwise) };
    args.remove(at);
    if at == args.len() {
        return Err(format!("{option} needs a number").into());
    }
    Ok(args.remove(at).parse()?)
}

impl Work {
    pub(crate) fn read(mut args: Vec<String>) -> Result<Self, Failure> {
        let fan_out = take(&mut args, "--fan-out");
        let workflows = number(&mut args, "--workflows", 2_000)?;
        let steps = number(&mut args, "--steps", 5)?;
        let at_once = number(&mut args, "--at-once", 256)?;
        let dispatchers = number(&mut args, "--dispatchers", 2)?;
        let workers = number(&mut args, "--workers", 2)?;
        match &args[..] {
            [file] => {
                let file = file.into();
                Ok(Self { file, workflows, steps, fan_out, at_once, dispatchers, workers })
            }
            other => Err(format!("expected one file, got {other:?}").into()),
        }
    }

    pub(crate) async fn measure(&self, store: Arc<dyn Provider>) -> Result<Value, Failure> {
        let runtime = self.start(store.clone()).await;
        let begun = Instant::now();
        let mut latencies = self.all(&store).await?;
        let took = begun.elapsed().as_secs_f64();
        let history = store.read("work-0").await?;
        runtime.shutdown(Some(1_000)).await;
        latencies.sort();
        let ms = |at: usize| latencies.get(at).map(|d| d.as_secs_f64() * 1_000.0);
        let (first, last) = ends(&history);
        Ok(json!({
            "workflows": self.workflows,
            "steps": self.steps,
            "fan_out": self.fan_out,
            "at_once": self.at_once,
            "dispatchers": self.dispatchers,
            "workers": self.workers,
            "failed": self.workflows - latencies.len(),
            "workflows_per_s": latencies.len() as f64 / took,
            "steps_per_s": (latencies.len() * self.steps) as f64 / took,
            "p50_ms": ms(latencies.len() / 2),
            "p99_ms": ms(latencies.len() * 99 / 100),
            "first_hundred_ms_a_step": first,
            "last_hundred_ms_a_step": last,
        }))
    }

    async fn start(&self, store: Arc<dyn Provider>) -> Arc<Runtime> {
        let nothing = |_: ActivityContext, step: String| async move { Ok(step) };
        let one_by_one = |ctx: OrchestrationContext, steps: String| async move {
            let steps: usize = steps.parse().map_err(|_| "not a number".to_owned())?;
            for step in 0..steps {
                ctx.schedule_activity("nothing", step.to_string()).await?;
            }
            Ok(steps.to_string())
        };
        let side_by_side = |ctx: OrchestrationContext, steps: String| async move {
            let steps: usize = steps.parse().map_err(|_| "not a number".to_owned())?;
            let each = (0..steps).map(|step| ctx.schedule_activity("nothing", step.to_string()));
            let done = ctx.join(each.collect::<Vec<_>>()).await;
            done.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(steps.to_string())
        };
        let activities = ActivityRegistry::builder().register("nothing", nothing).build();
        let orchestrations = OrchestrationRegistry::builder()
            .register("one_by_one", one_by_one)
            .register("side_by_side", side_by_side)
            .build();
        let options = RuntimeOptions {
            orchestration_concurrency: self.dispatchers,
            worker_concurrency: self.workers,
            // Shorter than the default, so that it waits as little as possible.
            dispatcher_min_poll_interval: Duration::from_millis(10),
            ..RuntimeOptions::default()
        };
        Runtime::start_with_options(store, activities, orchestrations, options).await
    }

    /// Runs all of them, up to `at_once` at a time; returns the time of each that completed.
    async fn all(&self, store: &Arc<dyn Provider>) -> Result<Vec<Duration>, Failure> {
        let mut under_way = tokio::task::JoinSet::new();
        let (mut latencies, mut next) = (Vec::new(), 0);
        while next < self.workflows || !under_way.is_empty() {
            while next < self.workflows && under_way.len() < self.at_once {
                let (client, name) = (Client::new(store.clone()), format!("work-{next}"));
                let kind = if self.fan_out { "side_by_side" } else { "one_by_one" };
                let steps = self.steps.to_string();
                next += 1;
                under_way.spawn(async move {
                    let begun = Instant::now();
                    client.start_orchestration(&name, kind, steps).await?;
                    let ended = client.wait_for_orchestration(&name, NEVER).await;
                    let ended = ended.map_err(|error| format!("{error:?}"))?;
                    match ended {
                        OrchestrationStatus::Completed { .. } => Ok(Some(begun.elapsed())),
                        other => {
                            eprintln!("{name}: {other:?}");
                            Ok::<_, Failure>(None)
                        }
                    }
                });
            }
            let Some(ended) = under_way.join_next().await else { break };
            latencies.extend(ended??);
        }
        Ok(latencies)
    }
}

/// The cost of a step among the first hundred and among the last, if there are enough.
fn ends(history: &[Event]) -> (Option<f64>, Option<f64>) {
    let scheduled = |event: &&Event| matches!(event.kind, EventKind::ActivityScheduled { .. });
    let at: Vec<u64> = history.iter().filter(scheduled).map(|event| event.timestamp_ms).collect();
    if at.len() < 200 {
        return (None, None);
    }
    let cost = |from: usize| at[from + 99].saturating_sub(at[from]) as f64 / 99.0;
    (Some(cost(0)), Some(cost(at.len() - 100)))
}
