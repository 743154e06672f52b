//! A worker is registered for as long as it runs.

use std::time::Duration;

use windlass_core::command::Claim;
use windlass_core::{PublicState, Tenant};
use windlass_worker::Failure;

use crate::stage::{EVER, Stage, key};

/// The names of the registered workers.
async fn registered(stage: &Stage) -> Vec<String> {
    let workers = stage.other.workers(&Tenant::default(), None, 10).await.unwrap();
    workers.iter().map(|worker| worker.id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_worker_registers_its_capabilities_and_deregisters_on_drain() {
    let stage = Stage::new().await;
    let worker = stage.worker().lanes(["a", "b"]).capabilities(["gpu"]);
    let running = worker.handler("k", async |_, (): ()| Ok(())).start().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let workers = stage.other.workers(&Tenant::default(), None, 10).await.unwrap();
    assert_eq!(workers.len(), 1);
    let lanes: Vec<&str> = workers[0].lanes.iter().map(|lane| lane.as_str()).collect();
    assert_eq!((workers[0].id.as_str(), lanes), ("w", vec!["a", "b"]));
    assert!(workers[0].capabilities.names.contains("gpu"));
    assert_eq!(workers[0].heartbeat_interval_ms, 5_000);
    let first_seen = workers[0].seen_at;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let workers = stage.other.workers(&Tenant::default(), None, 10).await.unwrap();
    assert_eq!(first_seen.ms_until(workers[0].seen_at) / 5_000, 12, "every five seconds");
    running.drain(EVER).await;
    assert!(registered(&stage).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_draining_worker_stays_registered_while_handlers_finish() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let slow = async |_, (): ()| {
        tokio::time::sleep(Duration::from_secs(300)).await;
        Ok(())
    };
    let running = stage.worker().handler("k", slow).start().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let draining = tokio::spawn(running.drain(EVER));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(registered(&stage).await, ["w"]);
    draining.await.unwrap();
    assert!(registered(&stage).await.is_empty());
    let task = stage.task("t").await;
    assert_eq!(task.lifecycle.public(), PublicState::Completed);
    assert_eq!((task.claims, task.lost_leases), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_dead_worker_are_revoked_before_they_expire() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let never = async |_, (): ()| std::future::pending::<Result<(), Failure>>().await;
    let worker = stage.worker().lease(Duration::from_secs(3_600)).handler("k", never);
    let running = worker.start().unwrap();
    while stage.task("t").await.lifecycle.public() != PublicState::Active {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let lost_at = tokio::time::Instant::now();
    drop(running);
    let claim = Claim::new("v");
    let claimed = stage.other.claim(claim, EVER).await.unwrap();
    assert_eq!(claimed[0].task.task_key(), key("t"));
    let waited = lost_at.elapsed();
    let expected = Duration::from_secs(12)..Duration::from_secs(19);
    assert!(expected.contains(&waited), "3.5 heartbeats of five seconds, not {waited:?}");
    assert_eq!(claimed[0].task.lost_leases, 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_writes_only_heartbeats() {
    let stage = Stage::new().await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(stage.faults.commits(), 0, "an engine without workers is idle");
    let running = stage.worker().handler("k", async |_, (): ()| Ok(())).start().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = stage.faults.commits();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let written = stage.faults.commits() - first;
    assert_eq!(written, 120, "one every five seconds");
    running.drain(EVER).await;
}

/// A worker that dies between its first claim and its registration is not declared dead.
#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_before_the_worker_is_registered() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let mut registering = stage.faults.pause_commit(1);
    let running = stage.worker().handler("k", async |_, (): ()| Ok(())).start().unwrap();
    registering.reached().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stage.task("t").await.claims, 0);
    registering.release();
    while stage.task("t").await.lifecycle.public() != PublicState::Completed {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    running.drain(EVER).await;
}
