//! A caller that waits for the end of a step is woken.

use std::time::Duration;

use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage, key};

#[tokio::test(start_paused = true)]
async fn a_caller_waiting_for_a_cancelled_activity_is_woken() {
    async fn races(ctx: Workflow, (): ()) -> Result<u32, StepError> {
        let slow = ctx.activity_named::<u32>("step", &0);
        let nap = ctx.sleep(Duration::from_secs(5));
        ctx.select((slow, nap)).await;
        Ok(1)
    }
    let stage = Stage::new().await;
    let step = |_: Context, n: u32| async move {
        tokio::time::sleep(EVER).await;
        Ok::<u32, Failure>(n)
    };
    let worker = stage
        .worker()
        .concurrency(2)
        .handler("step", step)
        .workflow_definition(WorkflowDefinition::named("races", races));
    let running = worker.start().unwrap();
    let handle = stage.engine.start_workflow_named::<u32>("races", &()).id("t").await.unwrap();
    stage.until("t/0", "claimed").await;
    let waits = stage.engine.handle(key("t/0"));
    let waits = tokio::spawn(async move { waits.wait().await.map(drop) });
    assert_eq!(handle.result().await.unwrap(), 1);
    let ended = tokio::time::timeout(EVER / 2, waits).await.expect("it is woken by the end");
    assert_eq!(ended.unwrap().unwrap_err().code(), "task_not_found");
    running.drain(EVER).await;
}
