//! Random workflows have the same result and history, whether their code stays in memory or is
//! replayed at every turn.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use windlass_store_test::Random;
use windlass_store_test::differential::seeds;
use windlass_worker::Failure;
use windlass_worker::workflow::testing::{TestFailure, WorkflowTest, WorkflowTestResult};
use windlass_worker::workflow::{Either, ExecutionState, StepError, Workflow};

use crate::workflow_cast::seconds;

/// An operation of a random workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Op {
    Activity(u64),
    /// Started, and awaited only after these operations.
    Started(u64, Vec<Op>),
    /// Started and dropped.
    Dropped(u64),
    Local(u64),
    Sleep(u64),
    Event(u64, u64),
    Child(Vec<Op>),
    Detached(Vec<Op>),
    Join(Vec<Vec<Op>>),
    Both(Vec<Op>, Vec<Op>),
    Select(Vec<Vec<Op>>),
    Either(Vec<Op>, Vec<Op>),
    Timeout(u64, Vec<Op>),
    Shielded(Vec<Op>),
    Signal(u64),
    Value(u64),
    Patched,
    Chance,
}

/// A random workflow: the operations of each of its executions.
type Plan = Vec<Vec<Op>>;

#[derive(Clone)]
struct Player {
    ctx: Workflow,
    trace: Arc<Mutex<Vec<String>>>,
}

async fn play(ctx: Workflow, plan: Plan) -> Result<Vec<String>, StepError> {
    let player = Player { ctx: ctx.clone(), trace: Arc::default() };
    let Some((ops, later)) = plan.split_first() else { return Ok(Vec::new()) };
    let played = player.all(ops.clone()).await;
    let trace = player.trace.lock().unwrap().clone();
    ctx.set_status(format!("{} lines", trace.len()))?;
    played?;
    if later.is_empty() {
        return Ok(trace);
    }
    ctx.continue_as_new(later).await.map(|never| match never {})
}

type Played<'p> = Pin<Box<dyn Future<Output = Result<(), StepError>> + Send + 'p>>;

impl Player {
    fn note(&self, text: impl std::fmt::Debug) {
        let line = format!("{} {text:?}", self.ctx.now());
        self.trace.lock().unwrap().push(line);
    }

    fn all(&self, ops: Vec<Op>) -> Played<'_> {
        Box::pin(async move {
            for op in ops {
                self.one(op).await?;
            }
            Ok(())
        })
    }

    async fn one(&self, op: Op) -> Result<(), StepError> {
        let ctx = &self.ctx;
        let activity = |n| ctx.activity_named::<u64>(format!("act{n}"), &n);
        match op {
            Op::Activity(n) => self.note(passing(activity(n).await)?),
            Op::Started(n, between) => {
                let started = activity(n).start();
                self.all(between).await?;
                self.note(passing(started.await)?);
            }
            Op::Dropped(n) => drop(activity(n).start()),
            Op::Local(n) => {
                self.note(ctx.local_activity("local", async move || Ok::<_, Failure>(n * 2)).await);
            }
            Op::Sleep(n) => ctx.sleep(seconds(n)).await?,
            Op::Event(n, wait) => {
                let event = ctx.wait_signal::<u64>(&format!("event{n}")).timeout(seconds(wait));
                self.note(passing(event.await)?);
            }
            Op::Child(ops) => self.note(passing(ctx.child(play, &vec![ops]).await)?),
            Op::Detached(ops) => self.note(ctx.start_detached(play, &vec![ops]).await?),
            Op::Signal(n) => ctx.signal(ctx.id().clone(), &format!("event{n}"), &n)?,
            Op::Value(n) => {
                let found = ctx.get_value::<u64>(&n.to_string())?;
                ctx.set_value(&n.to_string(), &(found.unwrap_or(n) + 1))?;
                self.note(found);
            }
            Op::Patched => self.note(ctx.patched("patch")),
            Op::Chance => self.note((ctx.random(), ctx.uuid())),
            together => self.together(together).await?,
        }
        Ok(())
    }

    async fn together(&self, op: Op) -> Result<(), StepError> {
        let ctx = &self.ctx;
        let each = |ops: Vec<Vec<Op>>| ops.into_iter().map(|ops| self.all(ops)).collect::<Vec<_>>();
        match op {
            Op::Join(branches) => ctx.join(each(branches)).await.into_iter().collect(),
            Op::Both(one, two) => {
                let (one, two) = ctx.join((self.all(one), self.all(two))).await;
                one.and(two)
            }
            Op::Select(branches) => {
                let (place, played) = ctx.select(each(branches)).await;
                self.note(place);
                played
            }
            Op::Either(one, two) => match ctx.select((self.all(one), self.all(two))).await {
                Either::First(played) | Either::Second(played) => played,
            },
            Op::Timeout(n, ops) => {
                let played = ctx.timeout(seconds(n), self.all(ops)).await;
                self.note(passing(played)?);
                Ok(())
            }
            Op::Shielded(ops) => {
                let player = Self { ctx: ctx.shielded(), ..self.clone() };
                player.all(ops).await
            }
            other => unreachable!("{other:?}"),
        }
    }
}

/// An error is an ordinary result, except for a cancellation.
fn passing<T: std::fmt::Debug>(result: Result<T, StepError>) -> Result<String, StepError> {
    match result {
        Err(error) if error.is_cancelled() => Err(error),
        result => Ok(format!("{result:?}")),
    }
}

fn ops(random: &mut Random, depth: u64) -> Vec<Op> {
    let most = if depth == 0 { 2 } else { 4 };
    (0..random.below(most) + 1).map(|_| op(random, depth)).collect()
}

fn op(random: &mut Random, depth: u64) -> Op {
    let branches = |random: &mut Random| -> Vec<Vec<Op>> {
        (0..random.below(3) + 1).map(|_| ops(random, depth - 1)).collect()
    };
    match random.below(if depth == 0 { 11 } else { 19 }) {
        0..3 => Op::Activity(random.below(6)),
        3 => Op::Dropped(random.below(6)),
        4 => Op::Local(random.below(6)),
        5 => Op::Sleep(random.below(9)),
        6 => Op::Event(random.below(3), random.below(20)),
        7 => Op::Signal(random.below(3)),
        8 => Op::Value(random.below(3)),
        9 => Op::Patched,
        10 => Op::Chance,
        11 => Op::Started(random.below(6), ops(random, depth - 1)),
        12 => Op::Child(ops(random, depth - 1)),
        13 => Op::Detached(ops(random, depth - 1)),
        14 => Op::Join(branches(random)),
        15 => Op::Both(ops(random, depth - 1), ops(random, depth - 1)),
        16 => Op::Select(branches(random)),
        17 => Op::Either(ops(random, depth - 1), ops(random, depth - 1)),
        _ if random.percent(50) => Op::Shielded(ops(random, depth - 1)),
        _ => Op::Timeout(random.below(9), ops(random, depth - 1)),
    }
}

/// The test of a seed: a workflow, its mocks and its inputs.
fn test(seed: u64) -> WorkflowTest<Vec<String>> {
    let mut random = Random::new(seed);
    let plan: Plan = (0..random.below(3) + 1).map(|_| ops(&mut random, 3)).collect();
    let mut test = WorkflowTest::new(play, &plan).workflow(play).seed(seed);
    for n in 0..6 {
        let failing = random.percent(20);
        let respond =
            move |n: u64| if failing { Err(Failure::permanent("no")) } else { Ok(n * 10) };
        test =
            test.activity_named(format!("act{n}"), respond).mock_duration(seconds(random.below(8)));
    }
    for n in 0..random.below(8) {
        let name = format!("event{}", random.below(3));
        test = test.signal_at(seconds(random.below(30)), &name, &n);
    }
    if random.percent(30) { test.cancel_at(seconds(random.below(20)), "stop") } else { test }
}

/// The complete outcome of a run.
fn came_of(run: &Result<WorkflowTestResult<Vec<String>>, TestFailure>) -> String {
    format!("{run:#?}")
}

fn kind(run: &Result<WorkflowTestResult<Vec<String>>, TestFailure>) -> &'static str {
    match run {
        Ok(WorkflowTestResult { result: Ok(_), executions, .. }) if executions.len() > 1 => {
            "continued"
        }
        Ok(WorkflowTestResult { result: Ok(_), .. }) => "completed",
        Ok(WorkflowTestResult { result: Err(ExecutionState::Cancelled { .. }), .. }) => "cancelled",
        Ok(WorkflowTestResult { result: Err(_), .. }) => "failed",
        Err(TestFailure::Stuck { .. }) => "stuck",
        Err(_) => "broken",
    }
}

#[tokio::test]
async fn replay_makes_no_difference() {
    let mut kinds = BTreeMap::new();
    let mut turns = 0;
    let seeds = seeds(0..400, 1);
    for seed in seeds.clone() {
        let once = test(seed).run().await;
        let replayed = test(seed).replay_every_turn().run().await;
        let reproduction = format!("WINDLASS_SEED={seed}");
        assert_eq!(came_of(&once), came_of(&replayed), "{reproduction}");
        assert_ne!(kind(&once), "broken", "{reproduction}: {once:?}");
        *kinds.entry(kind(&once)).or_insert(0) += 1;
        turns += once.iter().flat_map(|run| &run.executions).map(|e| e.rows.len()).sum::<usize>();
    }
    println!("{kinds:?} in {turns} turns");
    if seeds.clone().count() >= 400 {
        for kind in ["continued", "completed", "cancelled"] {
            assert!(kinds.get(kind).is_some_and(|&runs| runs > 10), "{kinds:?}");
        }
        assert!(turns > 2_000, "{turns}");
    }
}
