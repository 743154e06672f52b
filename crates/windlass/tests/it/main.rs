//! End-to-end use by a program: a file, an engine, a worker.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod cancel;
mod contention;
mod workflow;

use std::time::Duration;

use windlass::{Context, Engine};

/// All threads of the program are blocked for longer than a lease, and no lease is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_their_threads_lose_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let engine = Engine::open(&url).await.unwrap();
    let block = async |context: Context, (): ()| {
        std::thread::sleep(Duration::from_secs(4));
        Ok(context.attempt())
    };
    let nap = async |context: Context, (): ()| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(context.attempt())
    };
    let worker = engine.worker("w").concurrency(8).lease(Duration::from_secs(2));
    let running = worker.handler("block", block).handler("nap", nap).start().unwrap();
    let mut tasks = vec![engine.create("nap").await.unwrap()];
    for _ in 0..2 {
        tasks.push(engine.create("block").await.unwrap());
    }
    for task in tasks {
        assert_eq!(task.result::<u32>().await.unwrap(), 1, "it ran once");
    }
    running.drain(Duration::from_secs(60)).await;
    engine.shutdown().await.unwrap();
}
