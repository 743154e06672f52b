//! A workflow in a SQLite file. Kill it while it runs; run it again, and it resumes.
//!
//! Run it with `cargo run --example order_workflow`. It stores its order in `order_workflow.db`, or
//! in the file given as the first argument.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use windlass::{Context, Engine, Failure, RetryPolicy, StepError, Workflow};

async fn charge(_: Context, cents: u64) -> Result<String, Failure> {
    println!("charge: charging {cents} cents");
    Ok(format!("{cents} cents paid"))
}

async fn ship(_: Context, what: String) -> Result<String, Failure> {
    println!("ship: shipping {what}");
    Ok(format!("{what} is on its way"))
}

async fn order(ctx: Workflow, cents: u64) -> Result<String, StepError> {
    let paid = ctx.activity(charge, &cents).retry(RetryPolicy::exponential(5)).await?;
    for second in 1..=10 {
        ctx.set_status(format!("packing, {second} of 10"))?;
        if !ctx.is_replaying() {
            println!("order: packing, {second} of 10");
        }
        ctx.sleep(Duration::from_secs(1)).await?;
    }
    let sent = ctx.activity(ship, &"a book".to_owned()).await?;
    Ok(format!("{paid}, {sent}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "order_workflow.db".into());
    let engine = Engine::open(&format!("sqlite://{file}")).await?;
    let worker = engine
        .worker("orders")
        .concurrency(4)
        .workflow(order)
        .activity(charge)
        .activity(ship)
        .start()?;

    let started = engine.start_workflow(order, &500).id("order-1").await?;
    if started.is_duplicate() {
        println!("order-1 was started before");
    }
    let done: String = started.result().await?;
    println!("{done}");

    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await?;
    println!("see windlass workflow history order-1 --store sqlite://{file}");
    Ok(())
}
