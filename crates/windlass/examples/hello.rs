//! One task from its creation to its result, in memory.
//!
//! Run it with `cargo run --example hello`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use windlass::{Context, Engine};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    let worker = engine
        .worker("greeter")
        .handler("greet", async |_: Context, name: String| Ok(format!("Hello, {name}!")))
        .start()?;

    let task = engine.create("greet").payload("Ada").await?;
    println!("task {} is queued", task.id());
    println!("its result: {}", task.result::<String>().await?);

    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await?;
    Ok(())
}
