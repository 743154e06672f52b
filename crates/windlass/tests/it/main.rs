//! The whole as a program uses it: a file, an engine, a worker.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

use std::time::Duration;

use windlass::{Context, Engine};

/// One thread of the runtime is lost for a while, and nobody else's lease with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_blocks_its_thread_costs_nobody_else_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let engine = Engine::open(&url).await.unwrap();
    let block = async |_: Context, (): ()| {
        std::thread::sleep(Duration::from_secs(5));
        Ok(())
    };
    let nap = async |context: Context, (): ()| {
        tokio::time::sleep(Duration::from_secs(4)).await;
        Ok(context.attempt())
    };
    let worker = engine.worker("w").concurrency(8).lease(Duration::from_secs(2));
    let running = worker.handler("block", block).handler("nap", nap).start().unwrap();
    engine.create("block").await.unwrap();
    let nap = engine.create("nap").await.unwrap();
    assert_eq!(nap.result::<u32>().await.unwrap(), 1, "it ran once");
    running.drain(Duration::from_secs(60)).await;
    engine.shutdown().await.unwrap();
}
