use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass_worker::Context;

use crate::stage::{EVER, Stage};

const LIMIT: usize = 7;

#[tokio::test(start_paused = true)]
async fn handlers_stay_within_the_concurrency_and_all_tasks_complete() {
    let stage = Stage::new().await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (running.clone(), most.clone());
    let worker = stage.worker().concurrency(LIMIT).handler("k", move |_: Context, n: u64| {
        let (running, most) = counts.clone();
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(n % 11)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let worker = worker.start().unwrap();
    for n in 0..200 {
        stage.create(&format!("{n}"), &n.to_string()).await;
    }
    for n in 0..200 {
        stage.until(&format!("{n}"), "completed").await;
        assert_eq!(stage.history(&format!("{n}")), "created claimed completed");
    }
    assert_eq!(most.load(Ordering::SeqCst), LIMIT);
    worker.drain(EVER).await;
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_survives_an_outage_of_the_store() {
    let stage = Stage::new().await;
    let worker = stage.worker().handler("k", async |_: Context, (): ()| Ok(()));
    stage.faults.outage(windlass_store_test::Failure::Unavailable);
    let running = worker.start().unwrap();
    stage.create("t", "null").await;
    tokio::time::sleep(EVER).await;
    assert_eq!(stage.history("t"), "created");
    stage.faults.recover();
    stage.until("t", "completed").await;
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_ends_with_its_engine() {
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .handler("k", async |_: windlass_worker::Context, (): ()| Ok(()))
        .start()
        .unwrap();
    stage.engine.shutdown().await.unwrap();
    running.drain(Duration::ZERO).await;
}
