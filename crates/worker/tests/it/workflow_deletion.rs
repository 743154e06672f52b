//! Deletion of workflows and of their executions before the retention expires.

use std::time::Duration;

use windlass_core::{PublicState, Table, Task, Tenant};
use windlass_engine::TaskFilter;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::{Stage, key};

async fn nothing(_: Context, _: u32) -> Result<(), Failure> {
    Ok(())
}

/// Has a tree of children, `n` deep, two each; the leaves wait.
async fn tree(ctx: Workflow, n: u32) -> Result<(), StepError> {
    ctx.activity(nothing, &n).await?;
    if n == 0 {
        return ctx.wait_signal("go").await;
    }
    let children = (0..2).map(|_| ctx.child_named::<()>("tree", &(n - 1)));
    let children: Vec<_> = children.collect();
    ctx.join(children).await.into_iter().collect()
}

/// The records left in a store, except for lanes, workers and nodes.
fn left(stage: &Stage) -> Vec<Table> {
    let rows: Vec<Table> = stage.memory.snapshot().rows().map(|row| row.key.table).collect();
    let retained = [Table::Lane, Table::ReadyRoute, Table::Worker, Table::Node];
    rows.into_iter().filter(|table| !retained.contains(table)).collect()
}

/// Waits until all leaves of a tree of this depth wait for their message.
async fn until_leaves_wait(stage: &Stage, depth: usize) {
    let (tenant, filter) = (Tenant::default(), TaskFilter::default());
    let waits = |task: &Task| {
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        turns == 2 && task.id.as_str().matches('/').count() == depth
    };
    loop {
        let all = stage.other.tasks(&tenant, &filter, None, 100).await.unwrap();
        if all.iter().filter(|task| waits(task)).count() == 1 << depth {
            return;
        }
        // No log event shows that a workflow waits.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_workflow_tree_is_deleted_whole_or_not_at_all() {
    for ends in [false, true] {
        let stage = Stage::new().await;
        let worker = stage.worker().concurrency(8).activity(nothing).workflow(tree);
        let running = worker.start().unwrap();
        let handle = stage.other.start_workflow_named::<()>("tree", &2).id("t").await.unwrap();
        until_leaves_wait(&stage, 2).await;
        let before = left(&stage);
        assert_eq!(handle.delete(false).await.unwrap_err().code(), "not_terminal");
        assert_eq!(left(&stage), before);
        if ends {
            for leaf in ["t/1/1", "t/1/2", "t/2/1", "t/2/2"] {
                stage.other.workflow(key(leaf)).signal("go", &()).await.unwrap();
            }
            handle.result().await.unwrap();
        }
        assert_eq!(handle.delete(!ends).await.unwrap(), 7);
        running.drain(Duration::from_secs(10)).await;
        assert_eq!(left(&stage), []);
        assert_eq!(stage.memory.snapshot().payloads().count(), 0);
        assert_eq!(handle.delete(true).await.unwrap_err().code(), "task_not_found");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_is_deleted_with_its_parent() {
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(8).activity(nothing).workflow(tree);
    let running = worker.start().unwrap();
    let handle = stage.other.start_workflow_named::<()>("tree", &1).id("t").await.unwrap();
    until_leaves_wait(&stage, 1).await;
    let child = stage.other.workflow(key("t/1")).returning::<()>();
    child.signal("go", &()).await.unwrap();
    child.result().await.unwrap();
    assert_eq!(child.delete(true).await.unwrap_err().code(), "parent_open");
    assert_eq!(handle.delete(true).await.unwrap(), 3);
    running.drain(Duration::from_secs(10)).await;
    assert_eq!(left(&stage), []);
}

/// A rejected delete leaves the child and all its descendants unchanged.
#[tokio::test(start_paused = true)]
async fn a_rejected_delete_leaves_the_child_running() {
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(8).activity(nothing).workflow(tree);
    let running = worker.start().unwrap();
    let handle = stage.other.start_workflow_named::<()>("tree", &2).id("t").await.unwrap();
    until_leaves_wait(&stage, 2).await;
    let child = stage.other.workflow(key("t/1")).returning::<()>();
    for force in [true, false] {
        let before = left(&stage);
        assert_eq!(child.delete(force).await.unwrap_err().code(), "parent_open");
        assert_eq!(left(&stage), before);
    }
    for leaf in ["t/1/1", "t/1/2"] {
        stage.other.workflow(key(leaf)).signal("go", &()).await.unwrap();
    }
    child.result().await.unwrap();
    let before = left(&stage);
    assert_eq!(child.delete(false).await.unwrap_err().code(), "parent_open");
    assert_eq!(left(&stage), before, "its children exist as well");
    for leaf in ["t/2/1", "t/2/2"] {
        stage.other.workflow(key(leaf)).signal("go", &()).await.unwrap();
    }
    handle.result().await.unwrap();
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn old_executions_are_pruned_and_a_long_history_is_deleted() {
    async fn counts(ctx: Workflow, n: u32) -> Result<u32, StepError> {
        if n == 0 {
            for _ in 0..1_100 {
                ctx.sleep(Duration::from_secs(1)).await?;
            }
            return Ok(ctx.info().execution);
        }
        match ctx.continue_as_new(&(n - 1)).await? {}
    }
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("counts", counts))
        .start()
        .unwrap();
    let handle = stage.other.start_workflow_named::<u32>("counts", &5).id("t").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 5);
    assert_eq!(handle.prune(1, None).await.unwrap(), 4);
    let numbers: Vec<u32> =
        handle.executions().await.unwrap().iter().map(|execution| execution.number).collect();
    assert_eq!(numbers, [4]);
    assert_eq!(handle.history().await.unwrap().len(), 1_101, "more than one page");
    assert_eq!(handle.delete(false).await.unwrap(), 1);
    running.drain(Duration::from_secs(10)).await;
    assert_eq!(left(&stage), []);
    assert_eq!(stage.memory.snapshot().payloads().count(), 0);
}

/// Workflows that match a filter are deleted page by page; running and other ones stay.
#[tokio::test(start_paused = true)]
async fn a_filter_deletes_many_workflows_at_once() {
    async fn brief(_: Workflow, n: u32) -> Result<u32, Failure> {
        if n == 0 { Err(Failure::non_retryable("nothing")) } else { Ok(n) }
    }
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(8).activity(nothing).workflow(brief).workflow(tree);
    let running = worker.start().unwrap();
    let engine = &stage.other;
    for n in 0..7 {
        let one =
            engine.start_workflow_named::<u32>("brief", &n).id(format!("b{n}")).await.unwrap();
        one.wait().await.unwrap();
    }
    let old = engine.now();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let late = engine.start_workflow_named::<u32>("brief", &9).id("late").await.unwrap();
    late.result().await.unwrap();
    engine.start_workflow_named::<()>("tree", &1).id("t").await.unwrap();
    until_leaves_wait(&stage, 1).await;

    let completed = || engine.delete_workflows().state(PublicState::Completed).limit(4);
    let (found, _) = completed().ended_before(old.plus_ms(1_000)).find().await.unwrap();
    let ids: Vec<&str> = found.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["b1", "b2", "b3", "b4"]);
    let first = completed().ended_before(old.plus_ms(1_000)).await.unwrap();
    assert_eq!((first.deleted.len(), first.rejected.len()), (4, 0));
    let rest = completed().ended_before(old.plus_ms(1_000)).after(first.next).await.unwrap();
    assert_eq!((rest.deleted, rest.next), (vec![("b5".into(), 1), ("b6".into(), 1)], None));
    let trees = engine.delete_workflows().kind("tree").await.unwrap();
    assert_eq!((trees.deleted.len(), trees.rejected.len()), (0, 0), "it runs");
    let trees = engine.delete_workflows().kind("tree").force(true).await.unwrap();
    assert_eq!(trees.deleted, [("t".into(), 3)]);
    let rest = engine.delete_workflows().kind("brief").await.unwrap();
    assert_eq!(rest.deleted, [("b0".into(), 1), ("late".into(), 1)]);
    running.drain(Duration::from_secs(10)).await;
    assert_eq!(left(&stage), []);
}
