use std::sync::Arc;

use windlass_core::ReferenceTables;
use windlass_core::command::{Create, NewTask};
use windlass_store::{CommitId, Fault, Notification, Store, StoreError};
use windlass_store_sqlite::SqliteStore;

use crate::fixture::{Faults, Place, create, execute, ids, must, seqs};

/// A store with one task, and injectable faults.
async fn shaky() -> (Place, Faults, SqliteStore) {
    let (place, faults) = (Place::new(), Faults::default());
    let store = place.open_with(faults.options());
    must(&store, create("a")).await;
    (place, faults, store)
}

#[tokio::test]
async fn an_error_before_the_commit_changes_nothing() {
    for step in ["sqlite.begin", "sqlite.load", "sqlite.commit.before"] {
        let (_place, faults, store) = shaky().await;
        faults.plan(step, Fault::Io);
        let failed = execute(&store, &create("b")).await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{step}: {failed:?}");
        assert_eq!((ids(&store).await.len(), seqs(&store).await.len()), (1, 1), "{step}");
        must(&store, create("c")).await;
        assert_eq!(ids(&store).await, ["a", "c"], "{step}");
        let described = store.describe().await.unwrap();
        assert_eq!(
            (described.commits, described.durability.as_str()),
            (2, "wal, synchronous=FULL")
        );
    }
}

#[tokio::test]
async fn a_commit_with_a_lost_response_is_found_and_reported() {
    let (_place, faults, store) = shaky().await;
    faults.plan("sqlite.commit.after", Fault::Io);
    must(&store, create("b")).await;
    must(&store, create("c")).await;
    assert_eq!(ids(&store).await, ["a", "b", "c"]);
    assert_eq!(seqs(&store).await, [1, 2, 3]);
    assert_eq!(store.describe().await.unwrap().commits, 3);
}

/// The id of a commit that failed at `step` while the file could not be reopened.
async fn commit_id(faults: &Faults, store: &SqliteStore, step: &'static str, id: &str) -> CommitId {
    faults.plan(step, Fault::Io);
    faults.plan("sqlite.reopen", Fault::Io);
    match execute(store, &create(id)).await {
        Err(StoreError::OutcomeUnknown(commit_id)) => commit_id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_outcome_is_determined_later_and_is_final() {
    for (step, there) in [("sqlite.commit.before", false), ("sqlite.commit.after", true)] {
        let (_place, faults, store) = shaky().await;
        let commit_id = commit_id(&faults, &store, step, "b").await;
        assert_eq!(store.outcome(&commit_id).await.unwrap(), there, "{step}");
        assert_eq!(ids(&store).await.contains(&"b".to_owned()), there, "{step}");
        must(&store, create("c")).await;
        assert_eq!(store.outcome(&commit_id).await.unwrap(), there, "{step}, after more commits");
        let commits = store.describe().await.unwrap().commits;
        assert_eq!(commits, if there { 3 } else { 2 }, "{step}");
    }
}

#[tokio::test]
async fn an_outcome_is_determined_before_the_next_write() {
    let (_place, faults, store) = shaky().await;
    let lost = commit_id(&faults, &store, "sqlite.commit.before", "b").await;
    must(&store, create("c")).await;
    let committed = commit_id(&faults, &store, "sqlite.commit.after", "d").await;
    must(&store, create("e")).await;
    assert!(!store.outcome(&lost).await.unwrap());
    assert!(store.outcome(&committed).await.unwrap());
    assert_eq!(ids(&store).await, ["a", "c", "d", "e"]);
}

#[tokio::test]
async fn a_failed_outcome_lookup_can_be_retried() {
    let (_place, faults, store) = shaky().await;
    let mut notifications = store.notifications();
    let commit_id = commit_id(&faults, &store, "sqlite.commit.after", "b").await;
    faults.plan("sqlite.reopen", Fault::Io);
    // The lookup hits the failpoint, or the idle writer has hit it before.
    match store.outcome(&commit_id).await {
        Err(StoreError::Unavailable(_)) => assert!(store.outcome(&commit_id).await.unwrap()),
        found => assert!(found.unwrap()),
    }
    assert_eq!(
        notifications.next().await,
        Some(Notification::Anything),
        "others may have committed meanwhile"
    );
}

#[tokio::test]
async fn a_removed_file_is_not_recreated() {
    let (place, faults, store) = shaky().await;
    faults.plan("sqlite.commit.before", Fault::Io);
    let moved = place.path().with_extension("moved");
    let tx = store.begin().await.unwrap();
    std::fs::rename(place.path(), &moved).unwrap();
    let new = NewTask { lane: "elsewhere".into(), ..NewTask::new("b", "k") };
    let (_, changes) = ReferenceTables::default().attempt(tx.now(), &Create::one(new).into());
    let unknown = tx.commit(Arc::new(changes)).await;
    let Err(StoreError::OutcomeUnknown(commit_id)) = unknown else { panic!("{unknown:?}") };
    assert!(store.outcome(&commit_id).await.is_err());
    assert!(!place.path().exists());
    std::fs::rename(&moved, place.path()).unwrap();
    assert!(!store.outcome(&commit_id).await.unwrap());
    must(&store, create("c")).await;
    assert_eq!(ids(&store).await, ["a", "c"]);
}
