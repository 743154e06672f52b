//! Code at its limits is committed or rejected; no turn is lost because of its size.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass_core::Lifecycle;
use windlass_engine::Error;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage};

async fn result<T: serde::de::DeserializeOwned>(
    stage: &Stage,
    name: &str,
    id: &str,
) -> Result<T, Error> {
    let handle = stage.other.start_workflow_named::<T>(name, &()).id(id).await.unwrap();
    tokio::time::timeout(EVER, handle.result()).await.expect("it ends")
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_is_rejected() {
    async fn signals(ctx: Workflow, (): ()) -> Result<String, StepError> {
        let rejected = ctx.signal("other", "hello", &"x".repeat(300 * 1_024));
        Ok(rejected.unwrap_err().to_string())
    }
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("signals", signals))
        .start()
        .unwrap();
    let rejected: String = result(&stage, "signals", "p").await.unwrap();
    assert!(rejected.contains("was rejected"), "{rejected}");
    running.drain(EVER).await;
}

/// Its messages would look like messages of the engine.
#[tokio::test(start_paused = true)]
async fn no_workflow_can_use_the_id_of_the_engine() {
    let stage = Stage::new().await;
    let rejected = stage.other.start_workflow_named::<u32>("signals", &()).id("engine").await;
    assert_eq!(rejected.unwrap_err().code(), "invalid");
}

#[tokio::test(start_paused = true)]
async fn many_values_set_and_removed_in_one_turn() {
    async fn values(ctx: Workflow, (): ()) -> Result<u32, StepError> {
        for n in 0..2_000 {
            ctx.set_value(&n.to_string(), &n)?;
            ctx.remove_value(&n.to_string());
        }
        Ok(1)
    }
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("values", values))
        .start()
        .unwrap();
    assert_eq!(result::<u32>(&stage, "values", "v").await.unwrap(), 1);
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_reason_and_a_long_failure_of_the_cleanup() {
    async fn stops(ctx: Workflow, (): ()) -> Result<u32, Failure> {
        let why = ctx.cancelled().await;
        Err(Failure::permanent(format!("the cleanup failed: {}", "y".repeat(4_000) + &why)))
    }
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("stops", stops))
        .start()
        .unwrap();
    let handle = stage.other.start_workflow_named::<u32>("stops", &()).id("s").await.unwrap();
    handle.cancel("x".repeat(4_000)).await.unwrap();
    let ended = tokio::time::timeout(EVER, handle.wait()).await.expect("it ends").unwrap();
    assert!(matches!(ended.lifecycle, Lifecycle::Cancelled { .. }), "{:?}", ended.lifecycle);
    running.drain(EVER).await;
}

async fn large(_: Context, bytes: usize) -> Result<String, Failure> {
    Ok("x".repeat(bytes))
}

#[tokio::test(start_paused = true)]
async fn the_largest_result_of_an_activity() {
    async fn takes(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let text: String = ctx.activity(large, &(4 * 1_024 * 1_024 - 2)).await?;
        Ok(text.len())
    }
    let stage = Stage::new().await;
    let worker = stage.worker().activity(large);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("takes", takes)).start().unwrap();
    let length = result::<usize>(&stage, "takes", "t").await.unwrap();
    assert_eq!(length, 4 * 1_024 * 1_024 - 2);
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn large_results_in_one_turn() {
    async fn takes(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let all = (0..8).map(|_| ctx.activity(large, &1_000_000)).collect::<Vec<_>>();
        ctx.sleep(Duration::from_secs(1)).await?;
        let mut length = 0;
        for text in ctx.join(all).await {
            length += text?.len();
        }
        Ok(length)
    }
    let stage = Stage::new().await;
    let worker = stage.worker().activity(large).concurrency(8);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("takes", takes)).start().unwrap();
    assert_eq!(result::<usize>(&stage, "takes", "t").await.unwrap(), 8_000_000);
    running.drain(EVER).await;
}

/// More than a row may hold, from concurrent local activities.
#[tokio::test(start_paused = true)]
async fn large_results_of_local_activities_in_one_turn() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    async fn takes(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let local = || async {
            RUNS.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Failure>("x".repeat(4 * 1_024 * 1_024 - 2))
        };
        let all = (0..10).map(|_| ctx.local_activity("large", local)).collect::<Vec<_>>();
        let mut length = 0;
        for text in ctx.join(all).await {
            length += text?.len();
        }
        Ok(length)
    }
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("takes", takes))
        .start()
        .unwrap();
    let length = result::<usize>(&stage, "takes", "t").await.unwrap();
    assert_eq!(length, 10 * (4 * 1_024 * 1_024 - 2));
    assert_eq!(RUNS.load(Ordering::Relaxed), 10, "none of them ran twice");
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn large_messages_in_one_turn() {
    async fn reads(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let mut length = 0;
        for _ in 0..30 {
            length += ctx.wait_signal::<String>("m").await?.len();
        }
        Ok(length)
    }
    let stage = Stage::new().await;
    let handle = stage.other.start_workflow_named::<usize>("reads", &()).id("r").await.unwrap();
    for _ in 0..30 {
        handle.signal("m", &"x".repeat(250_000)).await.unwrap();
    }
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("reads", reads))
        .start()
        .unwrap();
    let length = tokio::time::timeout(EVER, handle.result()).await.expect("it ends").unwrap();
    assert_eq!(length, 30 * 250_000);
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn the_largest_input_of_an_activity_after_a_large_result() {
    async fn size(_: Context, text: String) -> Result<usize, Failure> {
        Ok(text.len())
    }
    async fn takes(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let text: String = ctx.activity(large, &(4 * 1_024 * 1_024 - 2)).await?;
        ctx.activity(size, &text).await
    }
    let stage = Stage::new().await;
    let worker = stage.worker().activity(large).activity(size);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("takes", takes)).start().unwrap();
    assert_eq!(result::<usize>(&stage, "takes", "t").await.unwrap(), 4 * 1_024 * 1_024 - 2);
    running.drain(EVER).await;
}
