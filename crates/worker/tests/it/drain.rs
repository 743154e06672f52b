use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage, signal};

#[tokio::test(start_paused = true)]
async fn what_is_short_is_finished_and_what_is_long_is_released() {
    let stage = Stage::new().await;
    let (said, mut hear) = signal();
    let handler = move |_: Context, seconds: u64| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            sleep(Duration::from_secs(seconds)).await;
            Ok(())
        }
    };
    let running = stage.worker().concurrency(4).handler("k", handler).start().unwrap();
    stage.create("short", "5").await;
    stage.create("long", "1000").await;
    hear.next().await.unwrap();
    hear.next().await.unwrap();
    let begun = Instant::now();
    running.drain(Duration::from_secs(20)).await;
    let took = begun.elapsed();
    assert!((20_000..=21_100).contains(&took.as_millis()), "{took:?}");
    stage.create("after", "1").await;
    sleep(EVER).await;
    assert_eq!(stage.history("short"), "created claimed completed");
    let long = stage.history("long").replace(" renewed", "");
    assert_eq!(long, "created claimed released");
    assert_eq!(stage.task("long").await.attempts, 0, "it is not billed");
    assert_eq!(stage.history("after"), "created", "nothing is claimed after the drain");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_listens_keeps_what_it_has_done() {
    let stage = Stage::new().await;
    let (said, mut hear) = signal();
    let handler = move |context: Context, done: bool| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            context.cancelled().await;
            if done { Ok("done") } else { Err(Failure::permanent("interrupted")) }
        }
    };
    let running = stage.worker().concurrency(2).handler("k", handler).start().unwrap();
    stage.create("done", "true").await;
    stage.create("undone", "false").await;
    hear.next().await.unwrap();
    hear.next().await.unwrap();
    running.drain(Duration::ZERO).await;
    assert_eq!(stage.history("done"), "created claimed completed");
    assert_eq!(stage.history("undone"), "created claimed released");
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_drains_at_once() {
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .handler("k", async |_: windlass_worker::Context, (): ()| Ok(()))
        .start()
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    running.drain(EVER).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
