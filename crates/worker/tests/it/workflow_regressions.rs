//! Regression tests for failures observed in other workflow engines.
//!
//! Related tests are elsewhere. Compensation after a cancellation request:
//! `workflow_engine::a_workflow_cleans_up_when_cancellation_is_requested`. One input per id:
//! `workflow_handle::the_same_id_is_a_duplicate_or_a_conflict`. A damaged history is retained:
//! `workflow_rejections::a_history_that_does_not_decode_fails_its_workflow_in_the_end`. Two engines
//! on a real database: `contention` in the tests of the crate `windlass`.

use std::process::Command as Process;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass_core::{
    FailureClass, Lifecycle, Message, PublicState, RetryPolicy, Row, Table, Task, Tenant,
};
use windlass_engine::{Engine, Error, WorkflowHandle};
use windlass_store_test::{Call, Failure as Fault, FaultStore};
use windlass_worker::workflow::{Either, StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure, Worker, WorkerHandle};

use crate::stage::{EVER, Hearing, Stage, key, signal};
use crate::workflow_cast::{done, instance, turn};

const LEASE: Duration = Duration::from_secs(30);

async fn add(_: Context, n: u32) -> Result<u32, Failure> {
    Ok(n + 1)
}

/// Adds one, step by step.
async fn climbs(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
    let mut sum = 0;
    for _ in 0..steps {
        sum = ctx.activity(add, &sum).await?;
    }
    Ok(sum)
}

fn climber(engine: &Engine, name: &str) -> Worker {
    Worker::new(engine.clone(), name).concurrency(4).activity(add).workflow(climbs)
}

async fn climb(engine: &Engine, id: &str, steps: u32) -> WorkflowHandle<u32> {
    engine.start_workflow_named("climbs", &steps).id(id).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_to_missing_workflows_do_not_stall_others() {
    async fn writes(ctx: Workflow, (): ()) -> Result<u32, StepError> {
        ctx.signal("missing", "hello", &1)?;
        let sum = ctx.activity(add, &1).await?;
        ctx.signal("missing", "hello", &2)?;
        ctx.activity(add, &sum).await
    }
    let stage = Stage::new().await;
    let worker = climber(&stage.engine, "w")
        .workflow_definition(WorkflowDefinition::named("writes", writes));
    let running = worker.start().unwrap();
    let writer = stage.other.start_workflow_named::<u32>("writes", &()).await.unwrap();
    let mut climbs = Vec::new();
    for n in 0..20 {
        climbs.push(climb(&stage.other, &format!("c{n}"), n).await);
        for engine in [&stage.engine, &stage.other] {
            let missing = engine.workflow(key(&format!("missing-{n}")));
            let codes = [missing.signal("go", &n).await.map(drop), missing.cancel("enough").await]
                .map(code);
            assert_eq!(codes, ["task_not_found", "task_not_found"]);
        }
    }
    for (n, handle) in (0..).zip(&climbs) {
        assert_eq!(handle.result().await.unwrap(), n);
    }
    assert_eq!(writer.result().await.unwrap(), 3);
    running.drain(EVER).await;
}

fn code(result: Result<(), Error>) -> &'static str {
    result.unwrap_err().code()
}

/// Runs a workflow with one activity that lasts two leases, and is retried if its lease is lost.
async fn long_activity(break_store: impl FnOnce(&FaultStore), away: Duration) -> (String, bool) {
    async fn long(ctx: Workflow, (): ()) -> Result<u32, StepError> {
        ctx.activity_named::<u32>("slow", &()).retry(RetryPolicy::fixed(3, 1_000)).await
    }
    let stage = Stage::new().await;
    let (said, mut hear) = signal();
    let slow = move |context: Context, (): ()| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            sleep(2 * LEASE).await;
            Ok(context.attempt())
        }
    };
    // It sends no heartbeat meanwhile, so that the next commit is a renewal.
    let worker = stage.worker().lease(LEASE).heartbeat_interval(EVER).handler("slow", slow);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("long", long)).start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("long", &()).await.unwrap();
    hear.next().await.unwrap();
    break_store(&stage.faults);
    sleep(away).await;
    stage.faults.recover();
    let attempts = handle.result().await.unwrap();
    running.drain(EVER).await;
    (format!("done at attempt {attempts}"), stage.faults.is_spent())
}

#[tokio::test(start_paused = true)]
async fn store_errors_during_lease_renewal_lose_no_activity() {
    for fault in [Fault::Unavailable, Fault::Full, Fault::Conflict] {
        let once = |faults: &FaultStore| faults.fail(Call::Commit, 1, fault);
        let found = long_activity(once, Duration::ZERO).await;
        assert_eq!(found, ("done at attempt 1".to_owned(), true), "{fault:?}");
    }
    let often = |faults: &FaultStore| faults.fail_times(Call::Begin, 5, Fault::Unavailable);
    let found = long_activity(often, Duration::ZERO).await;
    assert_eq!(found, ("done at attempt 1".to_owned(), true));
    // An outage that outlasts the lease costs an attempt, and not the activity.
    let away = |faults: &FaultStore| faults.outage(Fault::Unavailable);
    assert_eq!(long_activity(away, 3 * LEASE).await.0, "done at attempt 2");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_loses_a_conflict_retries() {
    let stage = Stage::new().await;
    let all = [climber(&stage.engine, "one"), climber(&stage.other, "two")];
    let all = all.map(|worker| worker.start().unwrap());
    for nth in 1..1_000 {
        match nth % 5 {
            0 | 1 => stage.faults.fail(Call::Commit, nth, Fault::Conflict),
            2 => stage.faults.fail(Call::Load, nth, Fault::Conflict),
            _ => {}
        }
        if nth % 29 == 0 {
            stage.faults.fail(Call::Begin, nth, Fault::Unavailable);
        }
    }
    let mut handles = Vec::new();
    for n in 0..40 {
        let engine = if n % 2 == 0 { &stage.other } else { &stage.engine };
        let handle = loop {
            match engine.start_workflow_named::<u32>("climbs", &5).id(format!("c{n}")).await {
                Ok(handle) => break handle,
                Err(error) => assert_eq!(error.code(), "store_unavailable", "{error}"),
            }
        };
        handles.push(stage.other.workflow(handle.key().clone()).returning::<u32>());
    }
    for handle in &handles {
        assert_eq!(handle.result().await.unwrap(), 5);
    }
    for running in all {
        running.drain(EVER).await;
    }
    assert!(stage.engine.stats().conflicts > 50, "conflicts have occurred");
}

/// The resident memory of this process, in bytes.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: i64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

/// Runs workflows with this many typed calls, from their start to their end.
fn call(calls: u64) {
    async fn wide(ctx: Workflow, (): ()) -> Result<u32, StepError> {
        let all = (0..100).map(|n| ctx.activity(add, &n)).collect::<Vec<_>>();
        let sum: u32 = ctx.join(all).await.into_iter().sum::<Result<u32, StepError>>()?;
        ctx.sleep(Duration::from_secs(1)).await?;
        Ok(sum)
    }
    for _ in 0..calls / 100 {
        let mut instance = instance(&WorkflowDefinition::named("wide", wide));
        turn(&mut instance, 0, Vec::new());
        turn(&mut instance, 1, (1..101).map(|step| done(step, "7")).collect());
    }
}

/// In a separate process, so that no other test affects its memory.
#[test]
fn typed_calls_leave_nothing_in_memory() {
    const ALONE: &str = "WINDLASS_TEST_ALONE";
    let calls = 100_000;
    if std::env::var_os(ALONE).is_some() {
        call(calls);
        let before = resident();
        call(calls);
        let more = resident() - before;
        assert!(more < 512 * 1_024, "{calls} calls left {more} bytes behind");
        return;
    }
    let name = "workflow_regressions::typed_calls_leave_nothing_in_memory";
    let mut alone = Process::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

async fn waits(ctx: Workflow, (): ()) -> Result<u32, StepError> {
    let first = ctx.activity(add, &1).await?;
    ctx.wait_signal::<()>("go").await?;
    Ok(first)
}

fn waiter(stage: &Stage) -> WorkerHandle {
    let worker =
        climber(&stage.engine, "w").workflow_definition(WorkflowDefinition::named("waits", waits));
    worker.start().unwrap()
}

/// A workflow that is not cached and has an unread message that it waits for; with the number of
/// the message.
async fn ready_with_message(stage: &Stage) -> (WorkflowHandle<u32>, Arc<Task>, u64) {
    let running = waiter(stage);
    let handle = stage.other.start_workflow_named::<u32>("waits", &()).id("t").await.unwrap();
    let waits = |task: &Task| {
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        turns == 2 && task.lifecycle.public() == PublicState::Suspended
    };
    while !waits(&handle.task().await.unwrap()) {
        // No log event shows that a workflow waits.
        sleep(Duration::from_millis(10)).await;
    }
    running.drain(EVER).await;
    let sent = handle.signal("go", &()).await.unwrap();
    let task = handle.task().await.unwrap();
    (handle, task, sent.seq)
}

/// Runs workers until the workflow fails. Returns the reason, after other workflows completed.
async fn given_up(stage: &Stage, handle: &WorkflowHandle<u32>) -> String {
    let running = waiter(stage);
    for n in 0..10 {
        let beside = climb(&stage.other, &format!("beside-{n}"), 3).await;
        assert_eq!(beside.result().await.unwrap(), 3);
    }
    let meanwhile = handle.task().await.unwrap();
    assert!(meanwhile.lifecycle.ended_at().is_none(), "it has more than one attempt");
    let ended = handle.wait().await.unwrap();
    running.drain(EVER).await;
    match &ended.lifecycle {
        Lifecycle::Failed { class: FailureClass::Crash, reason, .. } => reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_message_is_retained_and_named() {
    let stage = Stage::new().await;
    let (handle, task, seq) = ready_with_message(&stage).await;
    let messages = || {
        let all = stage.memory.snapshot();
        let rows: Vec<Row> =
            all.rows().filter(|row| row.key.table == Table::Message).cloned().collect();
        rows
    };
    let [row] = &messages()[..] else { panic!("there is one message") };
    assert_eq!(row.key, Message::key_of(&Tenant::default(), &task.id, seq));
    let odd = Row { schema: 99, body: "{\"shape\":\"unheard of\"}".into(), ..row.clone() };
    stage.memory.plant(odd.clone());
    let reason = given_up(&stage, &handle).await;
    assert_eq!(reason, format!("message {seq} of the mailbox cannot be read"));
    assert_eq!(messages(), [odd]);
}

/// An activity that signals when it starts and when it is cancelled.
fn listens(stage: &Stage) -> (Worker, Hearing) {
    let (said, hear) = signal();
    let listens = move |context: Context, (): ()| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            context.cancelled().await;
            said.send(Instant::now())?;
            Ok(())
        }
    };
    (stage.worker().concurrency(2).lease(LEASE).handler("listens", listens), hear)
}

/// The longest time between a commit and the sweep that follows it.
const A_MOMENT: Duration = Duration::from_millis(5);

/// The commit notifies it: no time passes, while the next renewal is ten seconds away.
#[tokio::test(start_paused = true)]
async fn a_running_activity_is_cancelled_at_once() {
    async fn races(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let listens = ctx.activity_named::<()>("listens", &());
        match ctx.select((listens, ctx.wait_signal::<()>("go"))).await {
            Either::First(ended) => ended,
            Either::Second(received) => received,
        }
    }
    type Ends = fn(&WorkflowHandle<()>) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;
    let ways: [(&str, Ends); 3] = [
        ("it lost a race", |handle| {
            Box::pin(async { handle.signal("go", &()).await.map(drop).unwrap() })
        }),
        ("its workflow is cancelled", |handle| {
            Box::pin(async { handle.cancel("enough").await.unwrap() })
        }),
        ("its workflow is terminated", |handle| {
            Box::pin(async { handle.terminate("enough").await.unwrap() })
        }),
    ];
    for (what, ends) in ways {
        for by_other in [false, true] {
            let stage = Stage::new().await;
            let (worker, mut hear) = listens(&stage);
            let running = worker
                .workflow_definition(WorkflowDefinition::named("races", races))
                .start()
                .unwrap();
            let engine = if by_other { &stage.other } else { &stage.engine };
            let handle = engine.start_workflow_named::<()>("races", &()).id("t").await.unwrap();
            hear.next().await.unwrap();
            let requested_at = Instant::now();
            ends(&handle).await;
            let heard = hear.next().await.unwrap();
            let took = heard - requested_at;
            assert!(took <= A_MOMENT, "{took:?}: {what}, by another engine: {by_other}");
            running.drain(EVER).await;
        }
    }
}

/// Five steps in sequence, and no time passes between them.
#[tokio::test(start_paused = true)]
async fn nothing_is_polled_between_steps() {
    let stage = Stage::new().await;
    let running = climber(&stage.engine, "w").start().unwrap();
    for by in [&stage.engine, &stage.other] {
        let started = Instant::now();
        let handle = by.start_workflow_named::<u32>("climbs", &5).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 5);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
    running.drain(EVER).await;
}

/// The calls to a store so far, and the number of rows that it returned.
fn call_counts(faults: &FaultStore) -> [u64; 6] {
    let [begins, loads, commits] = [Call::Begin, Call::Load, Call::Commit].map(|c| faults.calls(c));
    let [queries, payloads] = [Call::Query, Call::Payloads].map(|call| faults.calls(call));
    [begins, loads, commits, queries, payloads, faults.rows()]
}

/// How many steps a worker runs in a row before it claims again.
const IN_A_ROW: usize = 32;

#[tokio::test(start_paused = true)]
async fn the_cost_of_a_step_does_not_grow_with_the_history() {
    async fn long(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
        let mut sum = 0;
        for _ in 0..steps {
            sum = ctx.activity_named("look", &sum).await?;
        }
        Ok(sum)
    }
    let stage = Stage::new().await;
    let seen: Arc<Mutex<Vec<[u64; 6]>>> = Arc::default();
    let (looks, faults) = (seen.clone(), stage.faults.clone());
    let look = move |_: Context, n: u32| {
        looks.lock().unwrap().push(call_counts(&faults));
        std::future::ready(Ok(n + 1))
    };
    let worker = stage
        .worker()
        .handler("look", look)
        .workflow_definition(WorkflowDefinition::named("long", long));
    let running = worker.start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("long", &1_000).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 1_000);
    assert_eq!(stage.engine.stats().history_rows, 0, "it was cached all the time");
    running.drain(EVER).await;
    let seen = seen.lock().unwrap();
    // After a number of steps the next one has to be claimed.
    let cost = |step: usize| -> Vec<u64> {
        seen[step + IN_A_ROW].iter().zip(seen[step]).map(|(after, before)| after - before).collect()
    };
    for step in 11..1_000 - IN_A_ROW {
        assert_eq!(cost(step), cost(10), "step {step}");
    }
}
