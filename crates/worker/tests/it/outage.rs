//! Leases of a living worker through outages of the store, lost answers and slow commits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use windlass_core::{Change, LeaseLoss, PublicState};
use windlass_engine::Config;
use windlass_store_test::{Call, CrashPoint, Failure};
use windlass_worker::workflow::{StepError, Workflow};
use windlass_worker::{Context, Failure as Failed, Worker};

use crate::stage::{EVER, Stage, signal};

const MINUTE: Duration = Duration::from_secs(60);

/// How long a lease may stay unattended once the store is available again.
const MOST: Duration = Duration::from_secs(25);

/// A store without another engine that would declare the worker dead.
async fn lonely() -> Stage {
    Stage::beside(Config { background: false, ..Config::default() }).await
}

/// Makes the store unavailable while a handler runs. Returns how long its task stays leased then.
async fn unattended(away: Duration, lease: Duration) -> (Duration, Stage) {
    let stage = lonely().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let handler = move |context: Context, (): ()| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            if context.fence().epoch % 2 == 1 {
                context.cancelled().await;
            }
            Ok(())
        }
    };
    let running = stage.worker().lease(lease).handler("k", handler).start().unwrap();
    hear.next().await.unwrap();
    stage.faults.outage(Failure::Unavailable);
    sleep(away).await;
    stage.faults.recover();
    let back = Instant::now();
    stage.until("t", "released").await;
    let elapsed = back.elapsed();
    drop(running);
    (elapsed, stage)
}

#[tokio::test(start_paused = true)]
async fn a_lease_abandoned_in_an_outage_is_released_after_it() {
    for (away, lease) in
        [(18, 10 * MINUTE), (23, 10 * MINUTE), (45, 10 * MINUTE), (1_200, 60 * MINUTE)]
    {
        let (elapsed, stage) = unattended(Duration::from_secs(away), lease).await;
        assert!(elapsed <= MOST, "outage of {away} s: {elapsed:?}");
        assert!(stage.history("t").starts_with("created claimed released"), "an attempt is used");
        assert_eq!(stage.task("t").await.lost_leases, 0);
    }
}

/// A heartbeat that is answered late leaves less time than a handler needs to stop. The worker
/// claims after the next heartbeat, instead of claiming and releasing again and again.
#[tokio::test(start_paused = true)]
async fn a_worker_with_a_late_heartbeat_claims_after_the_next_one() {
    let stage = lonely().await;
    let handler = async |_: Context, (): ()| {
        sleep(Duration::from_secs(2)).await;
        Ok(())
    };
    let running = stage.worker().lease(10 * MINUTE).handler("k", handler).start().unwrap();
    sleep(Duration::from_secs(1)).await;
    let mut heartbeat = stage.faults.pause_commit(1);
    heartbeat.reached().await;
    stage.other.create("k").id("t").await.unwrap();
    sleep(Duration::from_secs(17)).await;
    heartbeat.release();
    stage.until("t", "completed").await;
    assert_eq!(stage.history("t"), "created claimed completed");
    drop(running);
}

async fn wait(ctx: Workflow, (): ()) -> Result<(), StepError> {
    let slow = async || {
        sleep(40 * MINUTE).await;
        Ok::<(), Failed>(())
    };
    ctx.local_activity("slow", slow).await
}

/// The same holds for the turn of a workflow.
#[tokio::test(start_paused = true)]
async fn a_turn_abandoned_in_an_outage_is_released_after_it() {
    let stage = lonely().await;
    let running = stage.worker().lease(60 * MINUTE).workflow(wait).start().unwrap();
    stage.other.create("wait").id("w").workflow(None).await.unwrap();
    stage.until("w", "claimed").await;
    stage.faults.outage(Failure::Unavailable);
    sleep(Duration::from_secs(45)).await;
    stage.faults.recover();
    let back = Instant::now();
    stage.until("w", "released").await;
    assert!(back.elapsed() <= MOST, "{:?}", back.elapsed());
    drop(running);
}

/// The commit that grants a lease takes effect, and its response is lost for good: the worker does
/// not know of the lease, and its heartbeat does not report it.
#[tokio::test(start_paused = true)]
async fn a_lease_whose_grant_was_lost_ends_with_the_next_heartbeat() {
    let stage = lonely().await;
    stage.create("t", "null").await;
    // The first commit registers the worker, the second one claims.
    stage.faults.crash(2, CrashPoint::AfterCommit);
    stage.faults.fail_times(Call::Outcome, 50, Failure::Unavailable);
    let handler = async |_: Context, (): ()| Ok(());
    let running = stage.worker().lease(60 * MINUTE).handler("k", handler).start().unwrap();
    let started = Instant::now();
    stage.until("t", "lease_lost").await;
    // Until the engine stops looking the commit up, and one heartbeat more.
    assert!(started.elapsed() <= MOST, "{:?}", started.elapsed());
    let lost = stage.events("t").into_iter().find_map(|entry| match entry.change() {
        Some(Change::LeaseLost { cause, .. }) => Some(cause),
        _ => None,
    });
    assert_eq!(lost, Some(LeaseLoss::NotHeld));
    drop(running);
}

/// A worker that stops while a grant is unknown to it leaves no lease behind.
#[tokio::test(start_paused = true)]
async fn deregistration_ends_leases_that_the_worker_does_not_hold() {
    let stage = lonely().await;
    stage.create("t", "null").await;
    stage.faults.crash(2, CrashPoint::AfterCommit);
    stage.faults.fail_times(Call::Outcome, 8, Failure::Unavailable);
    let handler = async |_: Context, (): ()| Ok(());
    let worker = stage.worker().lease(60 * MINUTE).heartbeat_interval(10 * MINUTE);
    let running = worker.handler("k", handler).start().unwrap();
    stage.until("t", "claimed").await;
    // The engine looks the commit up for less than this.
    sleep(Duration::from_secs(20)).await;
    running.drain(EVER).await;
    assert_eq!(stage.history("t"), "created claimed lease_lost");
}

/// Every commit takes half of a lease. Each task is run all the same, and is claimed only once.
#[tokio::test(start_paused = true)]
async fn leases_that_are_short_for_the_store_are_used() {
    let stage = Stage::new().await;
    for id in ["a", "b", "c"] {
        stage.create(id, "null").await;
    }
    stage.faults.slow_commits(Duration::from_millis(100));
    let running = quick(stage.worker()).start().unwrap();
    for id in ["a", "b", "c"] {
        stage.until(id, "completed").await;
        let task = stage.task(id).await;
        assert_eq!((task.claims, task.lifecycle.public()), (1, PublicState::Completed));
    }
    running.drain(EVER).await;
}

fn quick(worker: Worker) -> Worker {
    let handler = async |_: Context, (): ()| Ok(());
    worker.lease(Duration::from_millis(200)).handler("k", handler)
}

/// Counts warnings that leases are too short.
struct Warnings(&'static AtomicUsize);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target() == "windlass_worker::claimer"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_worker_warns_once_that_its_leases_are_too_short() {
    static WARNED: AtomicUsize = AtomicUsize::new(0);
    let _heard = tracing::subscriber::set_default(Warnings(&WARNED));
    let stage = Stage::new().await;
    for (commit_ms, expected) in [(10, 0), (100, 1)] {
        stage.faults.slow_commits(Duration::from_millis(commit_ms));
        let running = quick(stage.worker()).start().unwrap();
        for n in 0..3 {
            let id = format!("{commit_ms}-{n}");
            stage.create(&id, "null").await;
            stage.until(&id, "completed").await;
        }
        running.drain(EVER).await;
        assert_eq!(WARNED.load(Ordering::SeqCst), expected, "a commit takes {commit_ms} ms");
    }
}
