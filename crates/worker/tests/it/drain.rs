use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass_core::PublicState;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure, Worker};

use crate::stage::{EVER, Stage, signal};

#[tokio::test(start_paused = true)]
async fn a_drain_lets_short_handlers_finish_and_releases_long_ones() {
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
    let started = Instant::now();
    running.drain(Duration::from_secs(20)).await;
    let took = started.elapsed();
    assert!((20_000..=21_100).contains(&took.as_millis()), "{took:?}");
    stage.create("after", "1").await;
    sleep(EVER).await;
    assert_eq!(stage.history("short"), "created claimed completed");
    let long = stage.history("long").replace(" renewed", "");
    assert_eq!(long, "created claimed released");
    assert_eq!(stage.task("long").await.attempts, 0, "the attempt is not counted");
    assert_eq!(stage.history("after"), "created", "nothing is claimed after the drain");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_handler_may_still_return_a_result() {
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
    let started = Instant::now();
    running.drain(EVER).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
}

/// Has two turns, the second when its message arrives.
async fn waits(ctx: Workflow, (): ()) -> Result<u32, StepError> {
    ctx.wait_signal::<()>("go").await?;
    Ok(ctx.info().attempt)
}

/// How long another worker waits for a workflow that the first one has cached, if its message
/// arrives before the first one stops, or after it.
async fn takeover(drains: bool, message_first: bool) -> Duration {
    let stage = Stage::new().await;
    let worker = |name: &str| {
        let worker = Worker::new(stage.engine.clone(), name).concurrency(2);
        worker.workflow_definition(WorkflowDefinition::named("waits", waits))
    };
    let first = worker("first").start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("waits", &()).await.unwrap();
    while handle.task().await.unwrap().lifecycle.public() != PublicState::Suspended {
        // No log event shows that a workflow waits.
        sleep(Duration::from_millis(10)).await;
    }
    let go = async || handle.signal("go", &()).await.map(drop).unwrap();
    let started = Instant::now();
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
    let took = started.elapsed();
    second.drain(EVER).await;
    took
}

#[tokio::test(start_paused = true)]
async fn a_draining_worker_releases_its_sticky_workflows() {
    for message_first in [true, false] {
        assert_eq!(takeover(true, message_first).await, Duration::ZERO);
    }
}

/// The worker does not deregister. Its cached workflows stay sticky for five seconds.
#[tokio::test(start_paused = true)]
async fn the_workflow_of_a_dead_worker_stays_sticky_for_five_seconds() {
    for message_first in [true, false] {
        let took = takeover(false, message_first).await.as_millis();
        assert!((5_000..5_100).contains(&took), "{took}");
    }
}

/// A speculative turn runs before the end of its activity is committed. If the drain begins in
/// between, the turn is discarded, and any worker may claim the workflow.
#[tokio::test(start_paused = true)]
async fn a_drain_discards_a_speculative_turn_and_releases_its_workflow() {
    async fn step(_: Context, n: u32) -> Result<u32, Failure> {
        sleep(Duration::from_secs(1)).await;
        Ok(n + 1)
    }
    let stage = Stage::new().await;
    let (said, mut hear) = signal();
    let two = move |ctx: Workflow, (): ()| {
        let said = said.clone();
        async move {
            let n = ctx.activity(step, &0).await?;
            // The receiver is dropped when another worker runs this turn again.
            let _ = said.send(Instant::now());
            ctx.activity(step, &n).await
        }
    };
    let worker = |name: &str| {
        let worker = Worker::new(stage.engine.clone(), name).activity(step);
        worker.workflow_definition(WorkflowDefinition::named("two", two.clone()))
    };
    let first = worker("first").start().unwrap();
    // In a separate task, the drain runs before the tasks that the end of the handler wakes.
    let drained = tokio::spawn(async move {
        let started = hear.next().await.unwrap();
        first.drain(EVER).await;
        started
    });
    let handle = stage.other.start_workflow_named::<u32>("two", &()).id("t").await.unwrap();
    let started = drained.await.unwrap();
    assert_eq!(stage.history("t/1"), "", "the speculative turn is not committed");
    let second = worker("second").start().unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    assert_eq!(started.elapsed(), Duration::from_secs(1), "only the second activity takes time");
    second.drain(EVER).await;
}

/// Another activity still runs during the drain.
#[tokio::test(start_paused = true)]
async fn a_workflow_does_not_wait_for_the_end_of_a_drain() {
    async fn step(_: Context, seconds: u64) -> Result<u64, Failure> {
        sleep(Duration::from_secs(seconds)).await;
        Ok(seconds)
    }
    async fn two(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        Ok(ctx.activity(step, &2).await? + ctx.activity(step, &1).await?)
    }
    async fn one(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        ctx.activity(step, &60).await
    }
    let stage = Stage::new().await;
    let worker = |name: &str| {
        let worker = Worker::new(stage.engine.clone(), name).concurrency(4).activity(step);
        worker
            .workflow_definition(WorkflowDefinition::named("two", two))
            .workflow_definition(WorkflowDefinition::named("one", one))
    };
    let first = worker("first").start().unwrap();
    let started = Instant::now();
    let long = stage.other.start_workflow_named::<u64>("one", &()).await.unwrap();
    let short = stage.other.start_workflow_named::<u64>("two", &()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let drained = tokio::spawn(first.drain(EVER));
    let second = worker("second").start().unwrap();
    assert_eq!(short.result().await.unwrap(), 3);
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    assert_eq!(long.result().await.unwrap(), 60);
    assert_eq!(started.elapsed(), Duration::from_secs(60));
    drained.await.unwrap();
    second.drain(EVER).await;
}

/// Its cached workflows are claimable by other workers as soon as the drain begins.
#[tokio::test(start_paused = true)]
async fn a_worker_releases_its_idle_workflows_when_its_drain_begins() {
    let stage = Stage::new().await;
    let (said, mut hear) = signal();
    let long = move |_: Context, (): ()| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            sleep(Duration::from_secs(60)).await;
            Ok(())
        }
    };
    let worker = |name: &str| {
        let worker = Worker::new(stage.engine.clone(), name).concurrency(2);
        worker.workflow_definition(WorkflowDefinition::named("waits", waits))
    };
    let first = worker("first").handler("k", long).start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("waits", &()).await.unwrap();
    while handle.task().await.unwrap().lifecycle.public() != PublicState::Suspended {
        // No log event shows that a workflow waits.
        sleep(Duration::from_millis(10)).await;
    }
    stage.create("long", "null").await;
    hear.next().await.unwrap();
    let started = Instant::now();
    let drained = tokio::spawn(first.drain(EVER));
    let second = worker("second").start().unwrap();
    // The drain begins before the message arrives.
    sleep(Duration::from_millis(1)).await;
    handle.signal("go", &()).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 1);
    assert_eq!(started.elapsed(), Duration::from_millis(1));
    drained.await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(60), "the task is not cut short");
    second.drain(EVER).await;
}
