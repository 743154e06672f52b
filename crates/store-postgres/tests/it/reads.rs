//! Optimistic checks: reads, absent rows and rejections must still hold at the commit.

use windlass_core::command::{Cancel, Claim, Complete, Create, DeleteTask, NewTask, SetLaneState};
use windlass_core::{LaneState, Rejection, Tenant};
use windlass_store::StoreError;
use windlass_store_test::execute;
use windlass_store_test::postgres::Server;

use crate::stage::{create, key, must, open, prepare};

fn set_lane(state: LaneState) -> SetLaneState {
    SetLaneState { tenant: Tenant::default(), lane: "default".into(), state }
}

#[tokio::test]
async fn a_claim_that_read_an_active_lane_conflicts_with_a_pause() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("t")).await;
    let claim = prepare(&one, Claim::new("w")).await;
    assert_eq!(claim.claimed(), ["t"]);
    must(&two, set_lane(LaneState::Paused)).await;
    assert!(matches!(claim.commit().await, Err(StoreError::Conflict)));
    assert_eq!(server.sql("SELECT state FROM windlass.task"), "waiting");
}

/// A rejection is valid only if its reads pass the check.
#[tokio::test]
async fn a_rejection_based_on_a_stale_lane_conflicts() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("first")).await;
    must(&one, set_lane(LaneState::Disabled)).await;
    let rejected = prepare(&one, create("t")).await;
    assert!(matches!(rejected.outcome, Err(Rejection::LaneClosed { .. })));
    assert!(rejected.changes.is_empty(), "a rejection writes nothing, but is checked");
    must(&two, set_lane(LaneState::Active)).await;
    assert!(matches!(rejected.commit().await, Err(StoreError::Conflict)));
    must(&one, create("t")).await;
}

/// The same for a claim that found nothing because of what it read.
#[tokio::test]
async fn an_empty_claim_based_on_a_stale_lane_conflicts() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("t")).await;
    must(&one, set_lane(LaneState::Paused)).await;
    let nothing = prepare(&one, Claim::new("w")).await;
    assert!(nothing.claimed().is_empty());
    must(&two, set_lane(LaneState::Active)).await;
    assert!(matches!(nothing.commit().await, Err(StoreError::Conflict)));
}

/// A batch that read a task does not recreate it after it was deleted.
#[tokio::test]
async fn a_deleted_task_stays_deleted() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("t")).await;
    let late = prepare(&one, Cancel { task: key("t"), reason: "late".into() }).await;
    assert!(late.outcome.is_ok());
    assert_eq!((late.changes.updates.len(), late.changes.inserts.len()), (1, 0));
    must(&two, Cancel { task: key("t"), reason: "first".into() }).await;
    must(&two, DeleteTask { task: key("t") }).await;
    assert!(matches!(late.commit().await, Err(StoreError::Conflict)));
    assert_eq!(server.sql("SELECT count(*) FROM windlass.task"), "0");
}

/// Nor does it overwrite the next task with that id, whose versions start above all earlier ones.
#[tokio::test]
async fn a_recreated_task_is_not_overwritten() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("t")).await;
    let late = prepare(&one, Cancel { task: key("t"), reason: "late".into() }).await;
    must(&two, Cancel { task: key("t"), reason: "first".into() }).await;
    must(&two, DeleteTask { task: key("t") }).await;
    must(&two, Create::one(NewTask { priority: 7, ..NewTask::new("t", "k") })).await;
    assert!(matches!(late.commit().await, Err(StoreError::Conflict)));
    assert_eq!(server.sql("SELECT state, rank FROM windlass.task"), "waiting|-7");
}

/// An insert of an existing key is a conflict, and then a duplicate.
#[tokio::test]
async fn an_insert_never_overwrites() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("first")).await;
    let late = prepare(&one, create("t")).await;
    let other = Create::one(NewTask { priority: 7, ..NewTask::new("t", "k") });
    must(&two, other).await;
    assert!(matches!(late.commit().await, Err(StoreError::Conflict)));
    assert_eq!(server.sql("SELECT rank FROM windlass.task WHERE id = 't'"), "-7");
    let again = execute(&one, &create("t").into()).await.unwrap();
    assert_eq!(again, Err(Rejection::Conflict), "the existing task has a different priority");
}

#[tokio::test]
async fn an_insert_conflicts_with_a_key_deleted_meanwhile() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&two, create("other")).await;
    let late = prepare(&one, create("t")).await;
    must(&two, create("t")).await;
    must(&two, Cancel { task: key("t"), reason: "no".into() }).await;
    must(&two, DeleteTask { task: key("t") }).await;
    assert!(matches!(late.commit().await, Err(StoreError::Conflict)));
    must(&one, create("t")).await;
}

#[tokio::test]
async fn deletions_of_other_keys_do_not_conflict() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&two, create("other")).await;
    let late = prepare(&one, create("t")).await;
    for id in ["other", "another", "other"] {
        execute(&two, &create(id).into()).await.unwrap().ok();
        must(&two, Cancel { task: key(id), reason: "no".into() }).await;
        must(&two, DeleteTask { task: key(id) }).await;
    }
    late.commit().await.unwrap();
}

/// A deletion that was rolled back has a number, but stored no keys.
#[tokio::test]
async fn a_deletion_of_unknown_keys_is_a_conflict() {
    let raise =
        "SELECT setval('windlass.last_deletion', last_value + 1) FROM windlass.last_deletion";
    for known_after in [false, true] {
        let server = Server::start();
        let (one, two) = (open(&server).await, open(&server).await);
        must(&two, create("other")).await;
        let late = prepare(&one, create("t")).await;
        server.sql(raise);
        if known_after {
            must(&two, Cancel { task: key("other"), reason: "no".into() }).await;
            must(&two, DeleteTask { task: key("other") }).await;
        }
        assert!(matches!(late.commit().await, Err(StoreError::Conflict)), "{known_after}");
        must(&one, create("t")).await;
    }
}

/// Two lease holders complete the last two tasks of a limited lane, each reading the other as
/// running: the lane must count both, or its limit stays reached forever.
#[tokio::test]
async fn the_last_two_completions_in_a_lane_are_both_counted() {
    use windlass_core::command::LimitLane;
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    let limit = LimitLane { tenant: Tenant::default(), lane: "default".into(), limit: Some(2) };
    must(&one, create("first")).await;
    must(&one, limit).await;
    must(&one, Cancel { task: key("first"), reason: "no".into() }).await;
    let mut fences = Vec::new();
    for id in ["a", "b"] {
        must(&one, create(id)).await;
        let windlass_core::Outcome::Claimed(tasks) = must(&one, Claim::new("w")).await else {
            panic!("unexpected outcome of a claim")
        };
        fences.push(tasks[0].fence());
    }
    let complete = |at: usize| Complete { fence: fences[at].clone(), result: None };
    // The second waits for the first one's lock on the lane, so the two are concurrent.
    let first = prepare(&one, complete(0)).await;
    let second = tokio::spawn({
        let second = complete(1);
        async move { must(&two, second).await }
    });
    server.until("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").await;
    first.commit().await.unwrap();
    second.await.unwrap();
    let running = "SELECT (body::json #>> '{concurrency,running}') FROM windlass.lane";
    assert_eq!(server.sql(running), "0");
}

/// Two creates that each add a route have read the same count: the second is retried.
#[tokio::test]
async fn two_writers_of_one_record_are_both_counted() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    let tagged = |id: &str, tag: &str| {
        Create::one(NewTask { tag: Some(tag.into()), ..NewTask::new(id, "k") })
    };
    must(&one, tagged("first", "x")).await;
    let (second, third) = (tagged("second", "y"), tagged("third", "z"));
    let (earlier, later) = (prepare(&one, second).await, prepare(&two, third.clone()).await);
    earlier.commit().await.unwrap();
    assert!(matches!(later.commit().await, Err(StoreError::Conflict)));
    must(&two, third).await;
    assert_eq!(server.sql("SELECT body::json ->> 'ready_routes' FROM windlass.lane"), "3");
}
