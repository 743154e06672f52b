//! Workers of several nodes.

use std::time::Duration;

use windlass_core::command::{Claim, RegisterWorker};
use windlass_core::{Cursor, LaneName, Lifecycle, Tenant, Why, WorkerCapabilities};
use windlass_engine::EventFilter;
use windlass_store_test::postgres::Server;

use crate::stage::{create, engine, key};

const LEASE_MS: u64 = 3_600_000;
const BEAT_MS: u64 = 200;

fn register() -> RegisterWorker {
    RegisterWorker {
        tenant: Tenant::default(),
        id: "of a".into(),
        lanes: [LaneName::default()].into(),
        capabilities: WorkerCapabilities::default(),
        heartbeat_interval_ms: BEAT_MS,
        held: None,
    }
}

/// Node A is killed with its worker, without deregistration. Node B detects the missing heartbeats
/// and revokes the worker's leases, an hour before they would expire.
#[tokio::test]
async fn leases_of_a_killed_node_are_revoked_by_another_node() {
    const TASKS: u32 = 100;
    let server = Server::start();
    let (a, b) = (engine(&server).await, engine(&server).await);
    for n in 0..TASKS {
        b.submit(create(&format!("{n:02}"))).await.unwrap();
    }
    a.submit(register()).await.unwrap();
    let claim = |worker: &str, limit| Claim {
        limit,
        lease_ms: LEASE_MS,
        registered: true,
        ..Claim::new(worker)
    };
    let held = a.claim(claim("of a", TASKS), Duration::ZERO).await.unwrap();
    assert_eq!(held.len(), TASKS as usize);
    assert!(b.claim(claim("of b", 1), Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(b.workers(&Tenant::default(), None, 10).await.unwrap().len(), 1);
    let why = b.why(&key("00")).await.unwrap();
    assert!(matches!(why, Some(Why::Leased { worker, .. }) if worker.as_str() == "of a"));
    drop(a);
    let mut reclaimed = Vec::new();
    while reclaimed.len() < TASKS as usize {
        let more = b.claim(claim("of b", TASKS), Duration::from_secs(60)).await.unwrap();
        assert!(!more.is_empty(), "{} of {TASKS} were claimed", reclaimed.len());
        reclaimed.extend(more);
    }
    let revoked_early = held.iter().zip(&reclaimed).all(|(held, reclaimed)| {
        let Lifecycle::Active(lease) = &held.task.lifecycle else { return false };
        let Lifecycle::Active(next) = &reclaimed.task.lifecycle else { return false };
        // The next lease is as long, so it began long before the first would have expired.
        next.expires_at.minus_ms(LEASE_MS) < lease.expires_at.minus_ms(LEASE_MS / 2)
    });
    assert!(revoked_early);
    assert!(reclaimed.iter().all(|next| next.task.lost_leases == 1 && next.task.claims == 2));
    assert!(b.workers(&Tenant::default(), None, 10).await.unwrap().is_empty());
    b.shutdown().await.unwrap();
}

/// A worker with heartbeats through another node than the sweeping one keeps its leases.
#[tokio::test]
async fn a_worker_with_heartbeats_keeps_its_leases() {
    let server = Server::start();
    let (a, b) = (engine(&server).await, engine(&server).await);
    b.submit(create("t")).await.unwrap();
    a.submit(register()).await.unwrap();
    let claim = Claim { lease_ms: LEASE_MS, registered: true, ..Claim::new("of a") };
    let held = a.claim(claim, Duration::ZERO).await.unwrap();
    let first_seen = b.workers(&Tenant::default(), None, 10).await.unwrap()[0].seen_at;
    loop {
        a.submit(register()).await.unwrap();
        let workers = b.workers(&Tenant::default(), None, 10).await.unwrap();
        // Several times longer than it takes to be declared dead.
        if first_seen.ms_until(workers[0].seen_at) > 20 * BEAT_MS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(BEAT_MS / 4)).await;
    }
    let task = b.task(&key("t")).await.unwrap().unwrap();
    assert_eq!(task.epoch, held[0].task.epoch);
    assert!(matches!(task.lifecycle, Lifecycle::Active(_)));
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

/// The cursor of a durable subscription is shared by all nodes and only moves forward.
#[tokio::test]
async fn two_nodes_share_a_durable_subscription() {
    let server = Server::start();
    let (a, b) = (engine(&server).await, engine(&server).await);
    for id in ["x", "y", "z"] {
        a.submit(create(id)).await.unwrap();
    }
    let filter = EventFilter::default;
    let mut first = a.subscribe_durable("mailer", filter()).await.unwrap();
    let mut second = b.subscribe_durable("mailer", filter()).await.unwrap();
    let seen = first.next().await.unwrap();
    assert_eq!(second.next().await.unwrap(), seen, "readers are not exclusive");
    let stale = Cursor { seq: seen[0].seq, ..first.cursor().clone() };
    let end = first.ack_all().await.unwrap();
    assert_eq!(second.ack(&stale).await.unwrap(), end);
    a.submit(create("later")).await.unwrap();
    let mut third = b.subscribe_durable("mailer", filter()).await.unwrap();
    assert_eq!(third.next().await.unwrap()[0].task, Some("later".into()));
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}
