//! The log of a run, compared with its records.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_core::command::{Cancel, NewMessage, Replay, RequestCancel, SendMessages};
use windlass_core::{PublicState, TaskKey, Tenant};
use windlass_engine::TaskFilter;
use windlass_store::Store;
use windlass_store_test::LogFold;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::Stage;

async fn double(_: Context, n: u32) -> Result<u32, Failure> {
    Ok(2 * n)
}

async fn doubles(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    let twice = ctx.activity(double, &n).await?;
    ctx.sleep(Duration::from_secs(5)).await?;
    ctx.activity(double, &twice).await
}

/// Two children, a message, and two more executions.
async fn order(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    let first = ctx.child(doubles, &n).id(format!("child-{n}-a"));
    let second = ctx.child(doubles, &n).id(format!("child-{n}-b"));
    first.await?;
    second.await?;
    ctx.wait_signal::<()>("go").await?;
    if n == 0 {
        return Ok(ctx.info().execution);
    }
    match ctx.continue_as_new(&(n - 1)).await? {}
}

async fn saga(ctx: Workflow, n: u32) -> Result<(), StepError> {
    let waited = ctx.wait_signal::<()>("never").await;
    ctx.shielded().activity(double, &n).await?;
    waited
}

async fn fails(_: Workflow, _: u32) -> Result<u32, StepError> {
    Err(StepError::TimedOut)
}

async fn run(stage: &Stage) {
    let worker = stage.worker().concurrency(4).activity(double).workflow(doubles);
    let worker = worker.workflow_definition(WorkflowDefinition::named("order", order));
    let worker = worker.workflow_definition(WorkflowDefinition::named("saga", saga));
    let running =
        worker.workflow_definition(WorkflowDefinition::named("fails", fails)).start().unwrap();
    let start = |kind: &'static str, input: u32| {
        let engine = stage.other.clone();
        async move { engine.create(kind).id(kind).payload(&input).workflow(None).await.unwrap() }
    };
    let (order, saga) = (start("order", 2).await, start("saga", 1).await);
    let fails = start("fails", 1).await;
    stage.create("plain", "1").await;
    for _ in 0..3 {
        let message = NewMessage::new("order", "go", "ops");
        stage.other.submit(SendMessages::one(message)).await.unwrap();
    }
    while saga.task().await.unwrap().lifecycle.public() != PublicState::Suspended {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (task, reason) = (saga.key().clone(), "stop".to_owned());
    stage.other.submit(RequestCancel { task, reason }).await.unwrap();
    assert_eq!(order.result::<u32>().await.unwrap(), 2);
    saga.wait().await.unwrap();
    fails.wait().await.unwrap();
    let plain = TaskKey::new(&Tenant::default(), &"plain".into());
    let cancel = Cancel { task: plain.clone(), reason: "not needed".into() };
    stage.other.submit(cancel).await.unwrap();
    stage.other.submit(Replay { task: plain, execution: 0 }).await.unwrap();
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_run_folds_to_its_records() {
    let stage = Stage::new().await;
    run(&stage).await;
    let (tenant, filter) = (Tenant::default(), TaskFilter::default());
    let tasks = stage.other.tasks(&tenant, &filter, None, 1_000).await.unwrap();
    let log = stage.memory.events(0, 10_000).await.unwrap();
    let mut fold = LogFold::default();
    for entry in &log {
        fold.read(entry).unwrap();
    }
    for task in &tasks {
        fold.check(&TaskKey::new(&tenant, &task.id), Some(task)).unwrap();
    }
    // The activities are deleted: their last log event is their end.
    let there: BTreeSet<TaskKey> =
        tasks.iter().map(|task| TaskKey::new(&tenant, &task.id)).collect();
    let gone: Vec<TaskKey> = fold.present().filter(|key| !there.contains(*key)).cloned().collect();
    assert!(gone.len() >= 13, "{gone:?}");
    for key in &gone {
        fold.check(key, None).unwrap();
    }
    assert!(fold.present().all(|key| there.contains(key)));
    let names: BTreeSet<&str> = log.iter().map(|entry| entry.name.as_str()).collect();
    for name in ["turn_committed", "cancel_requested", "continued_as_new", "signalled"] {
        assert!(names.contains(name), "{names:?}");
    }
}
