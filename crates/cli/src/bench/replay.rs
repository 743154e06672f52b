use std::time::{Duration, Instant};

use windlass::{Worker, WorkerHandle};
use windlass_core::{
    HistoryPayload, PayloadKey, PublicState, Task, Tenant, TurnRecord, WorkflowInput,
};
use windlass_engine::{Engine, Error, TaskHandle};
use windlass_store::Store;
use windlass_worker::workflow::{
    ExecutionStart, Instance, StepError, Workflow, WorkflowDefinition,
};

use crate::bench::bench_store::own_tenant;
use crate::bench::options::{BenchError, Common};
use crate::bench::report::{Progress, Report};
use crate::bench::workflows::nothing;

/// The page size of the engine.
const ROWS_PER_PAGE: usize = 256;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A workflow with a long history, replayed by a worker that does not cache it.
#[derive(Debug)]
pub(super) struct Replay<'c> {
    pub(super) common: &'c Common,
    /// The minimum number of events in its history: commands and inputs.
    pub(super) events: u32,
}

/// Records two events for each step, then waits.
async fn remembers(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
    let mut sum = 0;
    for step in 0..steps {
        sum += ctx.activity(nothing, &(step % 2)).await?;
    }
    let more: u32 = ctx.wait_signal("go").await?;
    Ok(sum + more)
}

fn definition() -> WorkflowDefinition {
    WorkflowDefinition::named("remembers", remembers)
}

/// The duration of each phase of a replay.
#[derive(Debug, Default)]
struct Phases {
    load: Duration,
    decode: Duration,
    replay: Duration,
    bytes: usize,
    events: usize,
}

impl Replay<'_> {
    pub(super) async fn run(&self) -> Result<(), BenchError> {
        let bench_store = self.common.bench_store()?;
        let (engine, store) = bench_store.start(self.common.config()).await?;
        let (tenant, steps) = (own_tenant(), self.events.div_ceil(2));
        let start = engine.create("remembers").tenant(tenant.clone()).payload(&steps);
        let handle = start.workflow(None).await?;
        let builder = worker(&engine, &tenant, "builder")?;
        let task = self.built(&handle, steps).await?;
        builder.drain(Duration::from_secs(30)).await;
        let phases = self.phases(&task, steps, &*store).await?;
        let before = engine.stats().history_rows;
        let reader = worker(&engine, &tenant, "reader")?;
        let start = Instant::now();
        engine.signal(handle.id().clone(), "go").tenant(tenant).payload(&1).await?;
        let sum: u32 = handle.result().await?;
        let took = start.elapsed();
        assert_eq!(sum, steps / 2 + 1, "a workflow gets the results of its activities");
        let rows = engine.stats().history_rows - before;
        reader.drain(Duration::from_secs(30)).await;
        let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
        let mut report = Report::default();
        report.set("bench", "workflows");
        report.set("replay", self.events);
        report.set("events", phases.events);
        report.set("history_rows", rows);
        report.set("history_bytes", phases.bytes);
        report.number("load_ms", ms(phases.load));
        report.number("decode_ms", ms(phases.decode));
        report.number("replay_ms", ms(phases.replay));
        report.number("cold_replay_ms", ms(phases.load + phases.decode + phases.replay));
        report.number("message_to_end_ms", ms(took));
        report.set("durability", store.describe().await?.durability);
        engine.shutdown().await?;
        report.print(self.common.json);
        Ok(())
    }

    /// Waits until all steps have ended and the workflow waits for its message.
    async fn built(&self, handle: &TaskHandle, steps: u32) -> Result<std::sync::Arc<Task>, Error> {
        let progress = Progress::new("steps", u64::from(steps), self.common.json);
        let mut counted = 0;
        loop {
            let task = handle.task().await?;
            let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
            progress.add(u64::from(turns.saturating_sub(counted)));
            counted = turns;
            // The first turn creates the first step.
            if turns > steps && task.lifecycle.public() == PublicState::Suspended {
                return Ok(task);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Does what a worker without the workflow in its cache does, phase by phase.
    async fn phases(
        &self,
        task: &Task,
        steps: u32,
        store: &dyn Store,
    ) -> Result<Phases, BenchError> {
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        let keys: Vec<PayloadKey> = (0..turns).map(|turn| task.turn_key(turn)).collect();
        let (mut phases, mut payloads) = (Phases::default(), Vec::new());
        let start = Instant::now();
        for page in keys.chunks(ROWS_PER_PAGE) {
            payloads.extend(store.payloads(page).await?.into_iter().flatten());
        }
        phases.load = start.elapsed();
        phases.bytes = payloads.iter().map(|payload| payload.bytes.len()).sum();
        let start = Instant::now();
        let rows = payloads.iter().map(|payload| serde_json::from_slice(&payload.bytes));
        let rows: Vec<TurnRecord> = rows.collect::<Result<_, _>>().map_err(BenchError::Row)?;
        phases.decode = start.elapsed();
        phases.events = rows.iter().map(|row| row.inputs.len() + row.commands.len()).sum();
        let input = windlass_core::Payload::json(steps.to_string());
        let begin = ExecutionStart {
            first_step: 0,
            input: Some(HistoryPayload(input)),
            ..ExecutionStart::new(task.id.clone(), 7)
        };
        let program = definition();
        let start = Instant::now();
        let mut instance = Instance::begin(&program, begin);
        for row in &rows {
            instance.replay(row).map_err(BenchError::Replay)?;
        }
        // The last row is completed by the next turn.
        let none: Vec<WorkflowInput> = Vec::new();
        instance.turn(task.created_at, none).map_err(BenchError::Turn)?;
        phases.replay = start.elapsed();
        Ok(phases)
    }
}

fn worker(engine: &Engine, tenant: &Tenant, name: &str) -> Result<WorkerHandle, Error> {
    Worker::new(engine.clone(), name)
        .tenant(tenant.clone())
        .concurrency(4)
        .activity(nothing)
        .workflow_definition(definition())
        .start()
}
