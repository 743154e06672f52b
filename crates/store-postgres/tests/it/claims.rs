//! Claims on several nodes: what they lease, in which order, and what they wait for.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Cancel, Claim, Complete, Create, LimitLane, NewTask};
use windlass_core::{Hints, LaneName, TagFilter, Tenant, WorkerCapabilities};
use windlass_engine::{Config, Engine};
use windlass_store::{Notification, Store};
use windlass_store_test::postgres::Server;
use windlass_store_test::{Order, execute_batch};

use crate::stage::{
    claimed, create, engine, key, must, open, open_impatient, patient_engine, prepare,
};

/// Much longer than a wake takes, and shorter than a lease.
const AWHILE: Duration = Duration::from_secs(15);

/// Whether one session waits for a lock.
const ONE_WAITS: &str = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

fn ranked(id: &str, priority: i32) -> Create {
    Create::one(NewTask { priority, ..NewTask::new(id, "k") })
}

fn tagged(id: &str, tag: &str, priority: i32) -> Create {
    Create::one(NewTask { tag: Some(tag.into()), priority, ..NewTask::new(id, "k") })
}

/// A claim of any tag.
fn any(limit: u32) -> Claim {
    let capabilities = WorkerCapabilities { tags: TagFilter::Any, ..WorkerCapabilities::default() };
    Claim { limit, capabilities, ..Claim::new("w") }
}

#[tokio::test]
async fn concurrent_claims_lease_different_tasks() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("a")).await;
    must(&one, create("b")).await;
    let first = prepare(&one, Claim::new("w")).await;
    let second = prepare(&two, Claim::new("w")).await;
    assert_eq!((first.claimed(), second.claimed()), (vec!["a".into()], vec!["b".into()]));
    second.commit().await.unwrap();
    first.commit().await.unwrap();
}

/// Every claim writes a lane with a limit: the second claim waits for the first instead of
/// conflicting.
#[tokio::test]
async fn claims_of_a_limited_lane_are_serialized() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("a")).await;
    must(&one, create("b")).await;
    let lane = LaneName::default();
    must(&one, LimitLane { tenant: Tenant::default(), lane, limit: Some(2) }).await;
    let first = prepare(&one, Claim::new("w")).await;
    let mut second = tokio::spawn(async move {
        let second = prepare(&two, Claim::new("w")).await;
        assert_eq!(second.claimed(), ["b"]);
        second.commit().await
    });
    tokio::select! {
        () = server.until(ONE_WAITS) => {}
        ended = &mut second => panic!("the claim did not wait: {ended:?}"),
    }
    first.commit().await.unwrap();
    second.await.unwrap().unwrap();
    let none = prepare(&one, Claim::new("w")).await;
    assert!(none.claimed().is_empty(), "the limit is reached");
}

/// A batch knows a task beyond the rows it has loaded, and must not lease it before them.
#[tokio::test]
async fn a_scan_covers_only_the_loaded_range() {
    let server = Server::start();
    let store = open(&server).await;
    must(&store, create("a")).await;
    must(&store, create("b")).await;
    let commands = [
        Cancel { task: key("a"), reason: "no".into() }.into(),
        ranked("z", -5).into(),
        Claim::new("w").into(),
    ];
    let batch = execute_batch(&store, &commands, Order::Strict, &Hints::default()).await.unwrap();
    assert_eq!(claimed(batch.answers[2].as_ref().unwrap()), ["b"]);
}

/// One of many queues has all the first tasks: it is read further until other queues are reached.
#[tokio::test]
async fn heads_of_many_queues_are_merged_in_order() {
    let server = Server::start();
    let store = open(&server).await;
    for queue in 0..10 {
        for n in 0..12 {
            let priority = if queue == 3 { 100 - n } else { -n };
            must(&store, tagged(&format!("{queue}-{n:02}"), &format!("q{queue}"), priority)).await;
        }
    }
    let outcome = must(&store, any(12)).await;
    let expected: Vec<String> = (0..12).map(|n| format!("3-{n:02}")).collect();
    assert_eq!(claimed(&outcome), expected);
}

/// A node with a long backlog leases an urgent task of another node first.
#[tokio::test]
async fn an_urgent_task_goes_before_the_backlog_of_another_node() {
    let server = Server::start();
    let store: Arc<dyn Store> = Arc::new(open(&server).await);
    let busy = Engine::with_shared_store(store.clone(), Config::default()).await.unwrap();
    let other = engine(&server).await;
    let tasks = (0..200).map(|n| NewTask::new(format!("{n:03}"), "k")).collect();
    busy.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    let claim = || async {
        let claim = Claim { limit: 5, ..Claim::new("w") };
        let claimed = busy.claim(claim, Duration::ZERO).await.unwrap();
        claimed.iter().map(|claimed| claimed.task.id.to_string()).collect::<Vec<_>>()
    };
    for round in 0..20 {
        let urgent = format!("urgent {round}");
        if round % 2 == 1 {
            // Before the notification arrives, a node scans from its last known position.
            let mut notifications = store.notifications();
            other.submit(ranked(&urgent, 9)).await.unwrap();
            // A heartbeat of the other node may arrive first, and makes no task ready.
            while !matches!(notifications.next().await.unwrap(),
                Notification::Changed { wakes, .. } if !wakes.is_empty())
            {}
        }
        let ids = claim().await;
        assert_eq!(ids.len(), 5);
        assert_eq!(ids.contains(&urgent), round % 2 == 1, "{round}: {ids:?}");
    }
}

/// A commit lowers the scan hints of the handle that made it, which gets no notification.
#[tokio::test]
async fn an_urgent_task_goes_before_the_backlog_of_the_same_node() {
    let server = Server::start();
    let engine = engine(&server).await;
    let tasks = (0..40).map(|n| NewTask::new(format!("{n:03}"), "k")).collect();
    engine.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    for round in 0..10 {
        let urgent = format!("urgent {round}");
        engine.submit(ranked(&urgent, 9)).await.unwrap();
        for id in [urgent, format!("{round:03}")] {
            let claimed = engine.claim(Claim::new("w"), Duration::ZERO).await.unwrap();
            assert_eq!(claimed[0].task.id.as_str(), id);
        }
    }
}

/// Rows that a batch locked and released wake claims of other nodes that skipped them.
#[tokio::test]
async fn a_released_task_is_found() {
    let server = Server::start();
    let store = open(&server).await;
    let engine = patient_engine(&server).await;
    engine.submit(create("t")).await.unwrap();
    let gone = prepare(&store, Claim::new("gone")).await;
    let waiting = engine.clone();
    let batches = engine.stats().batches;
    let claim = tokio::spawn(async move { waiting.claim(Claim::new("w"), AWHILE).await.unwrap() });
    while engine.stats().batches == batches {
        tokio::task::yield_now().await;
    }
    drop(gone);
    let claimed = claim.await.unwrap();
    assert_eq!(claimed.first().expect("the claim was woken").task.id.as_str(), "t");
}

/// A claim scans the heads of several queues and leases one task. The others are locked until its
/// commit, and claims that skipped them are notified.
#[tokio::test]
async fn a_scanned_but_not_leased_task_is_found() {
    let server = Server::start();
    let store = open(&server).await;
    let engine = patient_engine(&server).await;
    engine.submit(tagged("a", "x", 1)).await.unwrap();
    engine.submit(tagged("b", "y", 0)).await.unwrap();
    let one = prepare(&store, any(1)).await;
    assert_eq!(one.claimed(), ["a"]);
    let waiting = engine.clone();
    let batches = engine.stats().batches;
    let claim = tokio::spawn(async move { waiting.claim(any(1), AWHILE).await.unwrap() });
    while engine.stats().batches == batches {
        tokio::task::yield_now().await;
    }
    one.commit().await.unwrap();
    let claimed = claim.await.unwrap();
    assert_eq!(claimed.first().expect("the claim was woken").task.id.as_str(), "b");
}

/// Concurrent batches use the same queue: each inserts tasks before and after those that another
/// one has just scanned.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_batches_lose_no_wake() {
    let server = Server::start();
    let store = open_impatient(&server, Duration::from_secs(600)).await;
    let config = Config { max_concurrent_batches: Some(4), ..Config::default() };
    let engine = Engine::with_store(store, config).await.unwrap();
    let callers: Vec<_> = (0..24)
        .map(|caller| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for n in 0..60 {
                    engine.submit(create(&format!("{caller}-{n}"))).await.unwrap();
                    let claimed = engine.claim(Claim::new("w"), AWHILE).await.unwrap();
                    let fence = claimed.first().expect("one task for each caller").task.fence();
                    engine.submit(Complete { fence, result: None }).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

/// A batch that claims in one lane and settles in another locks both, in one order.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_with_limits_do_not_deadlock() {
    let server = Server::start();
    let engines = [engine(&server).await, engine(&server).await];
    let lanes = ["a", "b", "c", "d"];
    for lane in lanes {
        let task = NewTask { lane: lane.into(), ..NewTask::new(lane, "k") };
        engines[0].submit(Create::one(task)).await.unwrap();
        let limit = LimitLane { tenant: Tenant::default(), lane: lane.into(), limit: Some(1_000) };
        engines[0].submit(limit).await.unwrap();
    }
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let engine = engines[caller % 2].clone();
            tokio::spawn(async move {
                for n in 0..30 {
                    let lane = LaneName::from(lanes[(caller + n) % 4]);
                    let task =
                        NewTask { lane: lane.clone(), ..NewTask::new(Engine::new_id(), "k") };
                    engine.submit(Create::one(task)).await.unwrap();
                    let claim = Claim { lanes: vec![lane], ..Claim::new("w") };
                    let claimed = engine.claim(claim, AWHILE).await.unwrap();
                    let fence = claimed.first().expect("one task for each caller").task.fence();
                    engine.submit(Complete { fence, result: None }).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    for engine in engines {
        engine.shutdown().await.unwrap();
    }
    let sessions = "SELECT count(*) = 0 FROM pg_stat_activity \
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    server.until(sessions).await;
    assert_eq!(server.sql("SELECT sum(deadlocks) FROM pg_stat_database"), "0");
}
