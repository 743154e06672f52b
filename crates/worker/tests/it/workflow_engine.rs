//! Workflows on an engine: turns are committed, and activities are tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass_core::command::NewMessage;
use windlass_core::{PublicState, RetryPolicy, Tenant};
use windlass_engine::Engine;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::Stage;

async fn double(_: Context, n: u32) -> Result<u32, Failure> {
    Ok(2 * n)
}

async fn doubles(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    let twice = ctx.activity(double, &n).await?;
    ctx.activity(double, &twice).await
}

async fn start(engine: &Engine, kind: &str, input: u32) -> windlass_engine::TaskHandle {
    engine.create(kind).id(kind).payload(&input).workflow(None).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_workflow_runs_its_steps_in_sequence() {
    let stage = Stage::new().await;
    let running = stage.worker().concurrency(4).activity(double).workflow(doubles).start().unwrap();
    let handle = start(&stage.other, "doubles", 3).await;
    assert_eq!(handle.result::<u32>().await.unwrap(), 12);
    let task = handle.task().await.unwrap();
    let history = stage.other.history(&task, 0).await.unwrap();
    assert_eq!(history.len(), 3);
    assert_eq!(task.workflow.as_ref().unwrap().next_step, 2);
    let states = stage.other.count_by_state(&Tenant::default()).await.unwrap();
    assert_eq!(states, [(PublicState::Completed.as_str().to_owned(), 1)].into());
    running.drain(Duration::from_secs(10)).await;
}

async fn naps(ctx: Workflow, n: u32) -> Result<u32, Failure> {
    let before = ctx.now();
    for _ in 0..n {
        ctx.sleep(Duration::from_secs(60)).await?;
    }
    Ok(u32::try_from(before.ms_until(ctx.now())).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_sleep_lasts_as_long_as_requested() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(naps).start().unwrap();
    let handle = start(&stage.other, "naps", 3).await;
    let slept = handle.result::<u32>().await.unwrap();
    assert!((180_000..190_000).contains(&slept), "{slept}");
    running.drain(Duration::from_secs(10)).await;
}

async fn approval(ctx: Workflow, _: u32) -> Result<String, StepError> {
    let go = ctx.wait_signal::<String>("approved").timeout(Duration::from_secs(3_600)).await;
    match go {
        Ok(by) => Ok(format!("approved by {by}")),
        Err(StepError::TimedOut) => Ok("not approved".to_owned()),
        Err(other) => Err(other),
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_or_a_timeout() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(approval).start().unwrap();
    let handle = start(&stage.other, "approval", 0).await;
    let payload = Some(windlass_core::Payload::json("\"ada\""));
    let message = NewMessage { payload, ..NewMessage::new("approval", "approved", "ops") };
    stage.other.send_messages(&Tenant::default(), vec![message]).await.unwrap();
    assert_eq!(handle.result::<String>().await.unwrap(), "approved by ada");
    let late = stage.other.create("approval").id("late").payload(&0).workflow(None).await.unwrap();
    assert_eq!(late.result::<String>().await.unwrap(), "not approved");
    running.drain(Duration::from_secs(10)).await;
}

/// Nothing is cached, so that every turn replays the whole history.
#[tokio::test(start_paused = true)]
async fn a_fan_out_that_is_replayed_at_every_turn() {
    async fn all(ctx: Workflow, n: u32) -> Result<u32, StepError> {
        let calls = (0..n).map(|n| ctx.activity(double, &n)).collect::<Vec<_>>();
        let doubled = ctx.join(calls).await;
        doubled.into_iter().sum()
    }
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(8).workflow_cache_size(0);
    let running = worker
        .activity(double)
        .workflow_definition(WorkflowDefinition::named("all", all))
        .start()
        .unwrap();
    let handle = start(&stage.other, "all", 40).await;
    assert_eq!(handle.result::<u32>().await.unwrap(), 40 * 39);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn activities_are_retried_and_their_failures_reach_the_code() {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    async fn flaky(_: Context, n: u32) -> Result<u32, Failure> {
        match TRIES.fetch_add(1, Ordering::SeqCst) {
            tries if tries < n => Err(Failure::transient("not yet")),
            tries => Ok(tries),
        }
    }
    async fn insists(ctx: Workflow, n: u32) -> Result<String, StepError> {
        let tries = ctx.activity(flaky, &n).retry(RetryPolicy::fixed(5, 1_000)).await?;
        let gives_up = ctx.activity(flaky, &100).retry(RetryPolicy::fixed(2, 1_000)).await;
        Ok(format!("{tries}, {}", gives_up.unwrap_err()))
    }
    let stage = Stage::new().await;
    let worker = stage
        .worker()
        .activity(flaky)
        .workflow_definition(WorkflowDefinition::named("insists", insists));
    let running = worker.start().unwrap();
    let handle = start(&stage.other, "insists", 2).await;
    let said = handle.result::<String>().await.unwrap();
    assert_eq!(said, "2, `flaky` failed (transient): not yet");
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_continues_as_new_repeatedly() {
    async fn counts(ctx: Workflow, n: u32) -> Result<u32, StepError> {
        if n == 0 {
            return Ok(ctx.info().execution);
        }
        ctx.activity(double, &n).await?;
        match ctx.continue_as_new(&(n - 1)).await? {}
    }
    let stage = Stage::new().await;
    let worker = stage
        .worker()
        .activity(double)
        .workflow_definition(WorkflowDefinition::named("counts", counts));
    let running = worker.start().unwrap();
    let handle = start(&stage.other, "counts", 5).await;
    assert_eq!(handle.result::<u32>().await.unwrap(), 5);
    let executions = stage.other.executions(handle.key(), None, 100).await.unwrap();
    assert_eq!(executions.len(), 5);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_gets_the_result_of_its_child() {
    async fn parent(ctx: Workflow, n: u32) -> Result<u32, StepError> {
        ctx.child(doubles, &n).id("the-child").await
    }
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(4).activity(double).workflow(doubles);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("parent", parent)).start().unwrap();
    let handle = start(&stage.other, "parent", 5).await;
    assert_eq!(handle.result::<u32>().await.unwrap(), 20);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_cleans_up_when_cancellation_is_requested() {
    static UNDONE: AtomicU32 = AtomicU32::new(0);
    async fn undo(_: Context, n: u32) -> Result<(), Failure> {
        UNDONE.fetch_add(n, Ordering::SeqCst);
        Ok(())
    }
    async fn saga(ctx: Workflow, n: u32) -> Result<(), StepError> {
        ctx.activity(double, &n).await?;
        let waited = ctx.wait_signal::<()>("never").await;
        ctx.shielded().activity(undo, &n).await?;
        waited
    }
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(2).activity(double).activity(undo);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("saga", saga)).start().unwrap();
    let handle = start(&stage.other, "saga", 7).await;
    while !matches!(handle.task().await.unwrap().lifecycle.public(), PublicState::Suspended) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ask = windlass_core::command::RequestCancel {
        task: handle.key().clone(),
        reason: "enough".into(),
    };
    stage.other.submit(ask).await.unwrap();
    let ended = handle.wait().await.unwrap();
    assert_eq!(ended.lifecycle.public(), PublicState::Cancelled);
    assert_eq!(UNDONE.load(Ordering::SeqCst), 7);
    running.drain(Duration::from_secs(10)).await;
}

/// A worker dies between the turns; another one continues from the history.
#[tokio::test(start_paused = true)]
async fn another_worker_continues_from_the_history() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let stage = Stage::new().await;
    let count = move |_: Context, n: u32| {
        let counted = counted.clone();
        async move {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<u32, Failure>(n)
        }
    };
    async fn waits(ctx: Workflow, n: u32) -> Result<u32, StepError> {
        let first: u32 = ctx.activity_named("count", &n).await?;
        let go: u32 = ctx.wait_signal("go").await?;
        let second: u32 = ctx.activity_named("count", &go).await?;
        Ok(first + second)
    }
    let worker = |name: &str| {
        let worker = windlass_worker::Worker::new(stage.engine.clone(), name);
        worker
            .handler("count", count.clone())
            .workflow_definition(WorkflowDefinition::named("waits", waits))
    };
    let first = worker("one").start().unwrap();
    let handle = start(&stage.other, "waits", 1).await;
    while !matches!(handle.task().await.unwrap().lifecycle.public(), PublicState::Suspended)
        || calls.load(Ordering::SeqCst) == 0
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(first);
    let second = worker("two").start().unwrap();
    let payload = Some(windlass_core::Payload::json("10"));
    let message = NewMessage { payload, ..NewMessage::new("waits", "go", "ops") };
    stage.other.send_messages(&Tenant::default(), vec![message]).await.unwrap();
    assert_eq!(handle.result::<u32>().await.unwrap(), 11);
    assert_eq!(calls.load(Ordering::SeqCst), 2, "no activity is run again");
    second.drain(Duration::from_secs(10)).await;
}

/// Cancellation is requested of the child of a workflow too, and the child cleans up as well.
#[tokio::test(start_paused = true)]
async fn a_child_cleans_up_when_its_parent_is_cancelled() {
    static UNDONE: AtomicU32 = AtomicU32::new(0);
    async fn undo_child(_: Context, n: u32) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_secs(5)).await;
        UNDONE.fetch_add(n, Ordering::SeqCst);
        Ok(())
    }
    async fn careful(ctx: Workflow, n: u32) -> Result<(), StepError> {
        let waited = ctx.wait_signal::<()>("never").await;
        ctx.shielded().activity(undo_child, &n).await?;
        waited
    }
    async fn parent(ctx: Workflow, n: u32) -> Result<(), StepError> {
        ctx.child_named("careful", &n).id("the-careful").await
    }
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(4).activity(undo_child);
    let worker = worker.workflow_definition(WorkflowDefinition::named("careful", careful));
    let running =
        worker.workflow_definition(WorkflowDefinition::named("parent", parent)).start().unwrap();
    let handle = start(&stage.other, "parent", 7).await;
    let child = windlass_core::TaskKey::new(&Tenant::default(), &"the-careful".into());
    let child = stage.other.handle(child);
    while !child
        .task()
        .await
        .is_ok_and(|task| matches!(task.lifecycle.public(), PublicState::Suspended))
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ask = windlass_core::command::RequestCancel {
        task: handle.key().clone(),
        reason: "enough".into(),
    };
    stage.other.submit(ask).await.unwrap();
    assert_eq!(handle.wait().await.unwrap().lifecycle.public(), PublicState::Cancelled);
    assert_eq!(child.wait().await.unwrap().lifecycle.public(), PublicState::Cancelled);
    assert_eq!(UNDONE.load(Ordering::SeqCst), 7);
    running.drain(Duration::from_secs(10)).await;
}

/// Steps are in the lane of their workflow, unless its code sets another.
#[tokio::test(start_paused = true)]
async fn steps_are_in_the_lane_of_their_workflow() {
    async fn lane(ctx: Context, _: u32) -> Result<String, Failure> {
        Ok(ctx.lane().to_string())
    }
    async fn lanes(ctx: Workflow, n: u32) -> Result<Vec<String>, StepError> {
        let own = ctx.activity(lane, &n).await?;
        let said = ctx.activity(lane, &n).lane("default").await?;
        Ok(vec![own, said, ctx.info().attempt.to_string()])
    }
    let stage = Stage::new().await;
    let worker = stage.worker().lanes(["orders", "default"]).activity(lane);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("lanes", lanes)).start().unwrap();
    let create = stage.other.create("lanes").lane("orders").payload(&0).workflow(None);
    let handle = create.await.unwrap();
    assert_eq!(handle.result::<Vec<String>>().await.unwrap(), ["orders", "default", "1"]);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_draining_worker_leaves_workflows_between_two_turns() {
    async fn brief(_: Context, n: u32) -> Result<u32, Failure> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(n)
    }
    async fn long(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
        let mut sum = 0;
        for step in 0..steps {
            sum += ctx.activity(brief, &step).await?;
        }
        Ok(sum)
    }
    let stage = Stage::new().await;
    let worker = || {
        stage.worker().activity(brief).workflow_definition(WorkflowDefinition::named("long", long))
    };
    let running = worker().start().unwrap();
    let handle = start(&stage.other, "long", 100).await;
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    let started = tokio::time::Instant::now();
    running.drain(Duration::from_secs(60)).await;
    assert!(started.elapsed() < Duration::from_secs(2), "no more than the running activity");
    let turns = handle.task().await.unwrap().workflow.as_ref().unwrap().turns;
    assert!((10..13).contains(&turns), "{turns}");
    let running = worker().start().unwrap();
    assert_eq!(handle.result::<u32>().await.unwrap(), 4_950);
    running.drain(Duration::from_secs(60)).await;
}
