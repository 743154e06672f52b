//! Two engines on one database that conflict all the time.

use std::time::Duration;

use windlass::workflow::StepError;
use windlass::{Context, Engine, Failure, Workflow};
use windlass_store_test::postgres::Server;

async fn add(_: Context, n: u32) -> Result<u32, Failure> {
    Ok(n + 1)
}

/// Five activities; the last two run in parallel, so that their completions conflict.
async fn climb(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    let mut sum = n;
    for _ in 0..3 {
        sum = ctx.activity(add, &sum).await?;
    }
    let (one, other) = ctx.join((ctx.activity(add, &sum), ctx.activity(add, &sum))).await;
    Ok(one? + other?)
}

/// Runs workflows that both engines start and work on. The loser of a lock or of a conflict
/// retries: nothing fails.
async fn all_finish(url: &str) {
    let engines = [Engine::open(url).await.unwrap(), Engine::open(url).await.unwrap()];
    let workers: Vec<_> = engines
        .iter()
        .zip(["one", "two"])
        .map(|(engine, name)| {
            // No sticky cache: every turn replays the whole history.
            let worker = engine.worker(name).concurrency(8).workflow_cache_size(0);
            worker.activity(add).workflow(climb).start().unwrap()
        })
        .collect();
    let mut handles = Vec::new();
    for n in 0..40 {
        for engine in &engines {
            // Both engines start each workflow: one start is a duplicate.
            let handle = engine.start_workflow(climb, &n).id(format!("climb-{n}")).await.unwrap();
            handles.push((n, handle));
        }
    }
    assert_eq!(handles.iter().filter(|(_, handle)| handle.is_duplicate()).count(), 40);
    for (n, handle) in &handles {
        assert_eq!(handle.result().await.unwrap(), 2 * (n + 4));
    }
    for worker in workers {
        worker.drain(Duration::from_secs(60)).await;
    }
    for engine in engines {
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_on_a_file_fail_no_workflow() {
    let folder = tempfile::tempdir().unwrap();
    all_finish(&format!("sqlite://{}", folder.path().join("shared.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_on_a_server_fail_no_workflow() {
    let server = Server::start();
    all_finish(&server.url()).await;
}
