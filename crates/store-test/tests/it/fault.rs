//! A script's faults occur, and no others.

use std::sync::Arc;

use windlass_core::command::{Claim, Create, NewTask};
use windlass_core::{Command, PayloadKey, Slot};
use windlass_store::{MemoryStore, Query, Store, StoreError};
use windlass_store_test::{Call, CrashPoint, Failure, FaultStore, Snapshot, execute};

fn create(id: &str) -> Command {
    Create::one(NewTask::new(id, "k")).into()
}

fn store() -> FaultStore {
    FaultStore::new(Arc::new(MemoryStore::new()))
}

/// A short name for the result of a store call.
fn name<T>(answer: &Result<T, StoreError>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(StoreError::Conflict) => "conflict",
        Err(StoreError::OutcomeUnknown(_)) => "unknown",
        Err(StoreError::Rejected(_)) => "rejected",
        Err(StoreError::Unavailable(_)) => "unavailable",
        Err(StoreError::Full) => "full",
        Err(StoreError::Corrupt { .. }) => "corrupt",
        Err(StoreError::Incompatible { .. } | StoreError::Unreleased { .. }) => "incompatible",
        Err(StoreError::NotDurable { .. }) => "not durable",
        Err(StoreError::Closed) => "closed",
    }
}

async fn tasks(store: &FaultStore) -> usize {
    let snapshot = Snapshot::of(store).await.expect("nothing is planned to fail here");
    snapshot.rows.iter().filter(|row| row.key.table == windlass_core::Table::Task).count()
}

#[tokio::test]
async fn the_named_call_fails_once() {
    let key =
        PayloadKey { tenant: "default".into(), task: "t".into(), execution: 0, slot: Slot::INPUT };
    for (call, failure, expected) in [
        (Call::Begin, Failure::Unavailable, "unavailable"),
        (Call::Load, Failure::Corrupt, "corrupt"),
        (Call::Commit, Failure::Full, "full"),
        (Call::Commit, Failure::Rejected, "rejected"),
        (Call::Begin, Failure::Incompatible, "incompatible"),
        (Call::Begin, Failure::Closed, "closed"),
    ] {
        let store = store();
        store.fail(call, 2, failure);
        for (id, expected) in [("a", "ok"), ("b", expected), ("c", "ok")] {
            assert_eq!(name(&execute(&store, &create(id)).await), expected, "{call:?} {id}");
        }
        assert!(store.is_spent());
        assert_eq!((tasks(&store).await, store.commits()), (2, 2), "{call:?}");
    }
    let store = store();
    for call in [Call::Query, Call::Payloads, Call::Events, Call::Describe] {
        store.fail(call, 1, Failure::Unavailable);
    }
    let query = Query::all(windlass_core::Table::Task, 1);
    for expected in ["unavailable", "ok"] {
        assert_eq!(name(&store.query(&query).await), expected);
        assert_eq!(name(&store.payloads(std::slice::from_ref(&key)).await), expected);
        assert_eq!(name(&store.events(0, 1).await), expected);
        assert_eq!(name(&store.describe().await), expected);
    }
}

#[tokio::test]
async fn a_crash_leaves_all_or_nothing() {
    for (point, answer, written) in [
        (CrashPoint::BeforeCommit, "unavailable", 0),
        (CrashPoint::InCommit, "unknown", 0),
        (CrashPoint::AfterCommit, "unknown", 1),
    ] {
        let store = store();
        store.crash(1, point);
        store.fail_times(Call::Outcome, 2, Failure::Unavailable);
        let found = execute(&store, &create("t")).await;
        assert_eq!(name(&found), answer, "{point:?}");
        assert_eq!((tasks(&store).await, store.commits()), (written, written as u64), "{point:?}");
        if let Err(StoreError::OutcomeUnknown(commit_id)) = found {
            for expected in ["unavailable", "unavailable", "ok", "ok"] {
                assert_eq!(name(&store.outcome(&commit_id).await), expected);
            }
            assert_eq!(store.outcome(&commit_id).await.unwrap(), written == 1, "{point:?}");
        }
    }
}

#[tokio::test]
async fn a_conflict_is_not_an_unknown_outcome() {
    let (one, two) = two_handles();
    one.crash(1, CrashPoint::AfterCommit);
    let mut pause = one.pause_commit(1);
    let first = tokio::spawn({
        let one = one.clone();
        async move { execute(&one, &create("same")).await }
    });
    pause.reached().await;
    execute(&two, &create("same")).await.unwrap().unwrap();
    pause.release();
    // The held commit meets a real conflict, and the retry finds the task.
    assert_eq!(name(&first.await.unwrap()), "ok");
    assert_eq!((one.calls(Call::Commit), one.commits(), two.commits()), (2, 0, 1));
}

#[tokio::test]
async fn conflicts_are_retried() {
    let store = store();
    store.conflict(3);
    execute(&store, &create("t")).await.unwrap().unwrap();
    assert_eq!((store.calls(Call::Begin), store.calls(Call::Commit)), (4, 4));
    assert_eq!((store.commits(), tasks(&store).await), (1, 1));
}

#[tokio::test]
async fn an_outage_lasts_until_it_ends() {
    let store = store();
    store.outage(Failure::Unavailable);
    for _ in 0..3 {
        assert_eq!(name(&execute(&store, &create("t")).await), "unavailable");
        assert_eq!(name(&store.events(0, 1).await), "unavailable");
    }
    store.recover();
    assert_eq!(name(&execute(&store, &create("t")).await), "ok");
}

fn two_handles() -> (FaultStore, FaultStore) {
    let memory = MemoryStore::new();
    let other = memory.another();
    (FaultStore::new(Arc::new(memory)), FaultStore::new(Arc::new(other)))
}

#[tokio::test]
async fn a_held_commit_lets_another_go_first() {
    let (one, two) = two_handles();
    execute(&one, &create("t")).await.unwrap().unwrap();
    let mut pause = one.pause_commit(1);
    let slow = tokio::spawn({
        let one = one.clone();
        async move { execute(&one, &Claim::new("slow").into()).await }
    });
    pause.reached().await;
    let quick = execute(&two, &Claim::new("quick").into()).await.unwrap().unwrap();
    pause.release();
    let slow = slow.await.unwrap().unwrap().unwrap();
    let count = |outcome| match outcome {
        windlass_core::Outcome::Claimed(tasks) => tasks.len(),
        other => panic!("unexpected outcome of a claim: {other:?}"),
    };
    assert_eq!((count(quick), count(slow)), (1, 0));
}

#[tokio::test]
async fn a_dropped_pause_blocks_nothing() {
    let store = store();
    drop(store.pause_commit(1));
    assert_eq!(name(&execute(&store, &create("t")).await), "ok");
}

#[tokio::test]
async fn a_calm_store_clears_its_plans_but_not_known_outcomes() {
    let store = store();
    store.crash(1, CrashPoint::AfterCommit);
    let Err(StoreError::OutcomeUnknown(commit_id)) = execute(&store, &create("a")).await else {
        panic!("the response is lost")
    };
    store.fail(Call::Begin, 1, Failure::Full);
    store.fail(Call::Outcome, 1, Failure::Unavailable);
    store.outage(Failure::Unavailable);
    store.reject_if(|_| true);
    store.calm();
    assert!(store.is_spent());
    assert!(store.outcome(&commit_id).await.expect("no fault is planned"));
    assert_eq!(name(&execute(&store, &create("b")).await), "ok");
}
