//! A workflow from its start to its result, through the public API.

use std::time::Duration;

use windlass::workflow::StepError;
use windlass::{Context, Engine, Failure, Workflow};

async fn charge(_: Context, amount: u32) -> Result<String, Failure> {
    Ok(format!("{amount} charged"))
}

async fn order(ctx: Workflow, amount: u32) -> Result<String, StepError> {
    let charged = ctx.activity(charge, &amount).await?;
    ctx.set_status("waits for approval")?;
    let by: String = ctx.wait_signal("approved").await?;
    Ok(format!("{charged}, approved by {by}"))
}

#[tokio::test]
async fn a_workflow_is_started_by_its_function_and_returns_its_type() {
    let engine = Engine::open("memory:").await.unwrap();
    let worker = engine.worker("w").activity(charge).workflow_version("1.2.0", order);
    let worker = worker.start().unwrap();
    let start = || engine.start_workflow(order, &7).id("order-42").version("1.2.0");
    let handle = start().await.unwrap();
    handle.wait_until(|status| status.text == "waits for approval").await.unwrap().unwrap();
    handle.signal("approved", "Ada").await.unwrap();
    let result = handle.result().await.unwrap();
    assert_eq!(result, "7 charged, approved by Ada");
    assert!(start().await.unwrap().is_duplicate());
    let other = engine.start_workflow(order, &8).id("order-42").version("1.2.0").await.unwrap_err();
    assert_eq!(other.code(), "conflict");
    let unnamed = engine.start_workflow(|ctx, n: u32| order(ctx, n + 1), &7).await.unwrap_err();
    assert_eq!(unnamed.code(), "invalid");
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}
