use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass_worker::Context;

use crate::stage::{EVER, Stage, new_task};

async fn work(_: Context, seconds: u64) -> Result<(), windlass_worker::Failure> {
    sleep(Duration::from_secs(seconds)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_worker_stops_after_its_task_limit() {
    let stage = Stage::new().await;
    for id in ["a", "b", "c", "d"] {
        stage.create(id, "5").await;
    }
    let worker = stage.worker().concurrency(4).handler("k", work).max_tasks(3);
    let mut running = worker.start().unwrap();
    running.wait().await;
    for id in ["a", "b", "c"] {
        assert_eq!(stage.history(id), "created claimed completed");
    }
    assert_eq!(stage.history("d"), "created", "nothing more is claimed");
    // Draining a worker that has stopped returns at once.
    running.wait().await;
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_of_an_unknown_kind_is_not_counted() {
    let stage = Stage::new().await;
    let mut stranger = new_task("stranger", "1");
    (stranger.kind, stranger.priority) = ("unknown".into(), 1);
    stage.other.submit(windlass_core::command::Create::one(stranger)).await.unwrap();
    stage.create("known", "1").await;
    let mut running = stage.worker().handler("k", work).max_tasks(1).start().unwrap();
    running.wait().await;
    assert_eq!(stage.history("stranger"), "created claimed snoozed");
    assert_eq!(stage.history("known"), "created claimed completed");
}

#[tokio::test(start_paused = true)]
async fn a_worker_stops_after_its_idle_time() {
    let stage = Stage::new().await;
    let idle = Duration::from_secs(60);
    let worker = stage.worker().concurrency(2).handler("k", work).exit_when_idle(idle);
    let started = Instant::now();
    let mut running = worker.start().unwrap();
    // A running handler is work, and so is a task that is created before the idle time is over.
    stage.create("long", "600").await;
    stage.create("short", "1").await;
    stage.until("long", "completed").await;
    sleep(Duration::from_secs(30)).await;
    stage.create("last", "1").await;
    running.wait().await;
    assert_eq!(stage.history("last"), "created claimed completed");
    let idle = (started.elapsed() - Duration::from_secs(631)).as_secs();
    assert!((60..=66).contains(&idle), "{idle} s without work");
}
