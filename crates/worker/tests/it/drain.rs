use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass_core::PublicState;
use windlass_worker::workflow::{Program, StepError, Workflow};
use windlass_worker::{Context, Failure, Worker};

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

/// Which has two turns, the second of them when its message comes.
async fn waits(ctx: Workflow, (): ()) -> Result<u32, StepError> {
    ctx.event::<()>("go").await?;
    Ok(ctx.info().attempt)
}

/// How long another worker waits for a workflow that the first one had in memory, when its message
/// comes before that one ends, or after it.
async fn takeover(drains: bool, message_first: bool) -> Duration {
    let stage = Stage::new().await;
    let worker = |name: &str| {
        let worker = Worker::new(stage.engine.clone(), name).concurrency(2);
        worker.program(Program::named("waits", waits))
    };
    let first = worker("first").start().unwrap();
    let handle = stage.other.start_workflow::<u32>("waits", &()).await.unwrap();
    while handle.info().await.unwrap().lifecycle.public() != PublicState::Suspended {
        // No entry of the log tells that a workflow waits.
        sleep(Duration::from_millis(10)).await;
    }
    let go = async || handle.signal("go", &()).await.map(drop).unwrap();
    let begun = Instant::now();
    if drains {
        first.drain(EVER).await;
    } else {
        drop(first);
    }
    if message_first {
        go().await;
    }
    let second = worker("second").start().unwrap();
    if !message_first {
        go().await;
    }
    assert_eq!(handle.result().await.unwrap(), 1);
    let took = begun.elapsed();
    second.drain(EVER).await;
    took
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_is_not_waited_for_by_its_workflows() {
    for message_first in [true, false] {
        assert_eq!(takeover(true, message_first).await, Duration::ZERO);
    }
}

/// Nobody says that it is gone. What it had in memory is kept for it for five seconds.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_between_turns_is_waited_for_a_little() {
    for message_first in [true, false] {
        let took = takeover(false, message_first).await.as_millis();
        assert!((5_000..5_100).contains(&took), "{took}");
    }
}
