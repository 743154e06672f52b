use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};
use windlass_core::command::{Cancel, Claim, Complete, Create, NewTask};
use windlass_core::{PublicState, RetryPolicy};
use windlass_store_test::{Call, CrashPoint, Failure, FaultStore};
use windlass_worker::{Context, Worker, WorkerHandle};

use crate::stage::{EVER, Stage, key, new_task, signal};

const LEASE: Duration = Duration::from_secs(30);

/// Signals when it starts and when it is cancelled, and then returns a result.
fn patient(worker: Worker, lease: Duration, said: UnboundedSender<Instant>) -> WorkerHandle {
    let handler = move |context: Context, (): ()| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            context.cancelled().await;
            said.send(Instant::now())?;
            Ok("late")
        }
    };
    worker.lease(lease).handler("k", handler).start().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_its_handler_runs() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let handler = async |context: Context, (): ()| {
        let claimed_until = context.lease_deadline();
        sleep(10 * LEASE - LEASE / 6).await;
        assert!(!context.is_cancelled());
        assert!(context.lease_deadline() > claimed_until + 8 * LEASE);
        Ok(())
    };
    let running = stage.worker().lease(LEASE).handler("k", handler).start().unwrap();
    stage.until("t", "completed").await;
    let renewals = stage.history("t").matches(" renewed").count();
    assert_eq!(renewals, 29);
    let others = stage.history("t").replace(" renewed", "");
    assert_eq!(others, "created claimed completed");
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_cancels_its_handler() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let running = patient(stage.worker(), LEASE, said);
    let started = hear.next().await.unwrap();
    stage.other.submit(Cancel { task: key("t"), reason: "no".into() }).await.unwrap();
    let stopped = hear.next().await.unwrap();
    assert!(stopped - started <= LEASE / 3 + Duration::from_millis(5));
    running.drain(EVER).await;
    assert_eq!(stage.history("t"), "created claimed cancelled");
    assert_eq!(stage.result("t").await, None);
}

/// The next attempt does not run beside it, however rarely leases are renewed.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_stopped_before_the_next() {
    let stage = Stage::new().await;
    let mut new = new_task("t", "null");
    new.policy.attempt_timeout_ms = Some(1_000);
    new.policy.retry = Some(RetryPolicy::fixed(2, 2_000));
    stage.other.submit(Create::one(new)).await.unwrap();
    let (running_now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, peak) = (running_now.clone(), most.clone());
    let handler = move |_: Context, (): ()| {
        let (count, peak) = (count.clone(), peak.clone());
        async move {
            peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _counted = Counted(count);
            // It ignores its cancellation.
            sleep(EVER).await;
            Ok(())
        }
    };
    let running = stage.worker().lease(10 * LEASE).handler("k", handler).start().unwrap();
    stage.until("t", "failed").await;
    // Longer than a handler has to stop, and far less than the time to the next renewal.
    sleep(Duration::from_secs(2)).await;
    let (open, most) = (running_now.load(Ordering::SeqCst), most.load(Ordering::SeqCst));
    assert_eq!((open, most), (0, 1), "{}", stage.history("t"));
    running.drain(EVER).await;
}

/// Counts down when a handler ends or is dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_cancelled_task_is_rejected() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let handler = move |_: Context, (): ()| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            sleep(LEASE / 6).await;
            said.send(Instant::now())?;
            Ok("late")
        }
    };
    let running = stage.worker().lease(LEASE).handler("k", handler).start().unwrap();
    hear.next().await.unwrap();
    // The worker does not notice the cancellation.
    stage.faults.fail(Call::Query, 1, Failure::Unavailable);
    stage.other.submit(Cancel { task: key("t"), reason: "no".into() }).await.unwrap();
    hear.next().await.unwrap();
    running.drain(EVER).await;
    assert_eq!(stage.history("t"), "created claimed cancelled");
    assert_eq!(stage.result("t").await, None);
}

/// Runs a task whose renewals are blocked by `block`, and lets another worker claim it.
async fn check_lost<B>(block: impl FnOnce(&FaultStore) -> B, unblock: impl FnOnce(&FaultStore, B)) {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let running = patient(stage.worker(), LEASE, said);
    let started = hear.next().await.unwrap();
    let blocked = block(&stage.faults);
    let stopped = hear.next().await.unwrap();
    let latest = LEASE - Duration::from_secs(1);
    assert!(stopped - started <= latest, "by its clock, it stops before the lease expires");
    assert_eq!(stage.history("t"), "created claimed");
    let stolen = stage.other.claim(Claim::new("thief"), EVER).await.unwrap();
    unblock(&stage.faults, blocked);
    running.drain(EVER).await;
    let history = "created claimed lease_lost claimed";
    assert_eq!(stage.history("t"), history);
    let result = Some(windlass_core::Payload::json("1"));
    let complete = Complete { fence: stolen[0].task.fence(), result };
    stage.other.submit(complete).await.unwrap();
    assert_eq!(stage.result("t").await.unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_lost() {
    let away = |faults: &FaultStore| faults.outage(Failure::Unavailable);
    check_lost(away, |faults, ()| faults.recover()).await;
    check_lost(|faults| faults.pause_commit(1), |_, pause| pause.release()).await;
}

/// The leases of a worker that misses heartbeats are revoked, however long they are.
#[tokio::test(start_paused = true)]
async fn a_worker_without_heartbeat_stops_before_it_is_declared_dead() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let running = patient(stage.worker(), Duration::from_secs(86_400), said);
    let started = hear.next().await.unwrap();
    sleep(Duration::from_secs(3_600)).await;
    let renewed = stage.history("t");
    assert_eq!(renewed, "created claimed", "nothing is renewed before its time");
    stage.faults.outage(Failure::Unavailable);
    let cut = Instant::now();
    let stopped = hear.next().await.unwrap();
    assert!(stopped - started > Duration::from_secs(3_600));
    assert!(stopped - cut <= Duration::from_millis(16_500), "{:?}", stopped - cut);
    stage.faults.recover();
    running.drain(EVER).await;
}

/// The store counts from when it received a heartbeat, the worker from when it sent it.
#[tokio::test(start_paused = true)]
async fn a_claim_granted_after_missed_heartbeats_is_released() {
    let stage = Stage::new().await;
    let mut slow = stage.faults.pause_commit(1);
    let elsewhere = NewTask { lane: "elsewhere".into(), ..new_task("u", "null") };
    let engine = stage.engine.clone();
    let before = tokio::spawn(async move { engine.submit(Create::one(elsewhere)).await });
    slow.reached().await;
    let handler = async |_: Context, (): ()| Ok(());
    let running = stage.worker().lease(EVER).handler("k", handler).start().unwrap();
    sleep(Duration::from_secs(10)).await;
    slow.release();
    before.await.unwrap().unwrap();
    sleep(Duration::from_secs(4)).await;
    let mut claims = stage.faults.pause_commit(1);
    stage.create("t", "null").await;
    claims.reached().await;
    // The last heartbeat was sent with the answer to the first one, 17.5 seconds before.
    sleep(Duration::from_secs(14)).await;
    claims.release();
    stage.until("t", "completed").await;
    assert_eq!(stage.history("t"), "created claimed released claimed completed");
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_stop_is_dropped() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let handler = move |_: Context, (): ()| {
        let said = said.clone();
        async move {
            said.send(Instant::now())?;
            std::future::pending::<()>().await;
            Ok(())
        }
    };
    let running = stage.worker().lease(LEASE).handler("k", handler).start().unwrap();
    hear.next().await.unwrap();
    stage.other.submit(Cancel { task: key("t"), reason: "no".into() }).await.unwrap();
    // The slot is free again, so that the next task is run.
    stage.create("next", "null").await;
    hear.next().await.unwrap();
    drop(running);
}

/// Breaks the store when the handler ends, and repairs it after `away`.
async fn check_settle(
    break_store: impl Fn(&FaultStore) + Clone + Send + Sync + 'static,
    away: Duration,
    history: &str,
) {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let faults = stage.faults.clone();
    let handler = move |context: Context, (): ()| {
        let (said, faults, break_store) = (said.clone(), faults.clone(), break_store.clone());
        async move {
            if context.attempt() == 1 {
                break_store(&faults);
            }
            said.send(Instant::now())?;
            Ok("done")
        }
    };
    let running = stage.worker().lease(LEASE).handler("k", handler).start().unwrap();
    hear.next().await.unwrap();
    sleep(away).await;
    stage.faults.recover();
    stage.until("t", "completed").await;
    running.drain(EVER).await;
    assert_eq!(stage.history("t"), history);
    assert_eq!(stage.result("t").await.unwrap(), "\"done\"");
}

#[tokio::test(start_paused = true)]
async fn a_settle_is_retried_until_the_lease_expires() {
    let away = |faults: &FaultStore| faults.outage(Failure::Unavailable);
    check_settle(away, LEASE / 2, "created claimed completed").await;
    let twice = "created claimed lease_lost claimed completed";
    check_settle(away, 2 * LEASE, twice).await;
}

#[tokio::test(start_paused = true)]
async fn a_settle_whose_answer_is_lost_counts_once() {
    for point in [CrashPoint::InCommit, CrashPoint::AfterCommit] {
        let lose = move |faults: &FaultStore| {
            faults.crash(1, point);
            faults.fail_times(Call::Outcome, 50, Failure::Unavailable);
        };
        check_settle(lose, Duration::ZERO, "created claimed completed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_dropped_worker_expire() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let running = patient(stage.worker(), LEASE, said);
    hear.next().await.unwrap();
    drop(running);
    assert!(hear.next().await.is_none(), "the handler is dropped, and its sender with it");
    stage.until("t", "lease_lost").await;
    assert_eq!(stage.history("t"), "created claimed lease_lost");
    assert_eq!(stage.task("t").await.lifecycle.public(), PublicState::Waiting);
}

/// A handler that sends every deadline of its lease.
fn deadlines(worker: Worker, said: UnboundedSender<Instant>) -> WorkerHandle {
    let handler = move |context: Context, (): ()| {
        let said = said.clone();
        async move {
            loop {
                said.send(context.lease_deadline())?;
                let deadline = context.lease_deadline();
                while context.lease_deadline() == deadline {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            #[allow(unreachable_code, reason = "it gives the type that the handler returns")]
            Ok(())
        }
    };
    worker.lease(LEASE).handler("k", handler).start().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_counted_from_before_its_request() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    // The first commit registers the worker, which sends no other heartbeat during this test.
    let mut claiming = stage.faults.pause_commit(2);
    let running = deadlines(stage.worker().heartbeat_interval(EVER), said);
    claiming.reached().await;
    let requested_at = Instant::now();
    sleep(Duration::from_secs(2)).await;
    let mut renewing = stage.faults.pause_commit(1);
    claiming.release();
    assert_eq!(hear.next().await.unwrap(), requested_at + LEASE);
    renewing.reached().await;
    let requested_at = Instant::now();
    sleep(Duration::from_secs(3)).await;
    renewing.release();
    assert_eq!(hear.next().await.unwrap(), requested_at + LEASE);
    drop(running);
}

/// For example because its process was stopped, or its machine slept.
#[tokio::test(start_paused = true)]
async fn a_handler_with_an_expired_lease_is_cancelled_before_it_is_dropped() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (said, mut hear) = signal();
    let handler = move |context: Context, (): ()| {
        let said = said.clone();
        async move {
            if context.attempt() == 1 {
                said.send(Instant::now())?;
            }
            context.cancelled().await;
            // It has some time for cleanup.
            sleep(LEASE / 60).await;
            said.send(Instant::now())?;
            Ok(())
        }
    };
    let running = stage.worker().lease(LEASE).handler("k", handler).start().unwrap();
    hear.next().await.unwrap();
    tokio::time::advance(2 * LEASE).await;
    assert!(hear.next().await.is_some(), "it had time for cleanup");
    drop(running);
}
