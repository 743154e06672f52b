use std::sync::Arc;

use windlass_core::command::{Cancel, Claim, TrimLog};
use windlass_core::{
    Command, LoadRequest, Outcome, Payload, PayloadKey, Slot, Table, TaskId, TaskKey, Tenant,
    Timestamp,
};
use windlass_store::{Clock, CommitId, ManualClock, Query, Store, StoreError};
use windlass_store_sqlite::{Options, SqliteStore};

use crate::fixture::{Place, create, execute, ids, must, prepare, seqs};

#[tokio::test]
async fn durability_is_read_back_from_sqlite() {
    let place = Place::new();
    let store = place.open();
    let described = store.describe().await.unwrap();
    assert_eq!(described.backend, "sqlite");
    assert_eq!(described.durability, "wal, synchronous=FULL");
    let mode: String =
        place.raw().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn commits_survive_reopening() {
    let place = Place::new();
    let store = place.open();
    must(&store, create("a")).await;
    let events = store.events(0, 10).await.unwrap();
    let incarnation = store.describe().await.unwrap().incarnation;
    drop(store);
    let store = place.open();
    assert_eq!(ids(&store).await, ["a"]);
    assert_eq!(store.events(0, 10).await.unwrap(), events);
    assert_eq!(store.describe().await.unwrap().incarnation, incarnation);
    let key = |task: &str| PayloadKey {
        tenant: Tenant::default(),
        task: TaskId::new(task),
        execution: 0,
        slot: Slot::INPUT,
    };
    let payloads = store.payloads(&[key("b"), key("a")]).await.unwrap();
    assert_eq!(payloads, [None, Some(Payload::json("{}"))]);
    assert!(matches!(must(&store, Claim::new("w")).await, Outcome::Claimed(t) if t.len() == 1));
}

#[tokio::test]
async fn only_batches_with_changes_count_as_commits() {
    let place = Place::new();
    let store = place.open();
    must(&store, create("a")).await;
    must(&store, create("b")).await;
    let cancel = |id: &str| -> Command {
        let task = TaskKey { tenant: Tenant::default(), id: TaskId::new(id) };
        Cancel { task, reason: "no more".into() }.into()
    };
    assert_eq!(execute(&store, &cancel("c")).await.unwrap().unwrap_err().code(), "task_not_found");
    assert_eq!(store.describe().await.unwrap().commits, 2);
    must(&store, cancel("a")).await;
    assert_eq!(store.describe().await.unwrap().commits, 3);
}

#[tokio::test]
async fn a_dropped_transaction_leaves_no_trace() {
    let place = Place::new();
    let store = place.open();
    let (tx, _, _) = prepare(&store, &create("a")).await.unwrap();
    drop(tx);
    let begun = store.begin();
    drop(begun);
    let writes = place.raw().execute("UPDATE meta SET clock = clock", []);
    assert_eq!(writes.unwrap(), 1, "the lock is free");
    must(&store, create("b")).await;
    assert_eq!(ids(&store).await, ["b"]);
}

#[tokio::test]
async fn a_transaction_outlives_the_handle_it_came_from() {
    let place = Place::new();
    let store = place.open();
    let (tx, _, changes) = prepare(&store, &create("a")).await.unwrap();
    drop(store);
    tx.commit(changes).await.unwrap();
    assert_eq!(ids(&place.open()).await, ["a"]);
}

#[tokio::test]
async fn event_numbers_are_never_reused() {
    let place = Place::new();
    let store = place.open();
    for n in 0..40 {
        must(&store, create(&n.to_string())).await;
    }
    let trimmed = must(&store, TrimLog { retention_ms: 0, page: 1_000 }).await;
    assert_eq!(trimmed, Outcome::Trimmed { trimmed: 40, more: false });
    assert!(seqs(&store).await.is_empty());
    drop(store);
    let store = place.open();
    must(&store, create("more")).await;
    assert_eq!(seqs(&store).await, [41]);
    assert_eq!(store.events(u64::MAX, 10).await.unwrap(), []);
}

#[tokio::test]
async fn the_store_time_is_monotonic() {
    let place = Place::new();
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(5_000)));
    let open = || {
        let clock: Arc<dyn Clock> = clock.clone();
        place.open_with(Options { clock, ..Options::default() })
    };
    let store = open();
    must(&store, create("a")).await;
    drop(store);
    clock.set(Timestamp::from_millis(1_000));
    let store = open();
    assert_eq!(store.begin().await.unwrap().now(), Timestamp::from_millis(5_000).next());
    must(&store, create("b")).await;
    clock.set(Timestamp::from_millis(6_000));
    assert_eq!(store.begin().await.unwrap().now(), Timestamp::from_millis(6_000));
}

async fn rejects_everything(store: &SqliteStore) {
    let closed = |error: StoreError| assert!(matches!(error, StoreError::Closed), "{error:?}");
    closed(store.begin().await.err().unwrap());
    closed(store.outcome(&CommitId::new(1)).await.unwrap_err());
    closed(store.query(&Query::all(Table::Task, 1)).await.unwrap_err());
    closed(store.payloads(&[]).await.unwrap_err());
    closed(store.events(0, 1).await.unwrap_err());
    closed(store.describe().await.unwrap_err());
    assert_eq!(store.notifications().next().await, None);
}

#[tokio::test]
async fn a_closed_store_releases_its_resources() {
    let place = Place::new();
    let store = place.open();
    must(&store, create("a")).await;
    assert_eq!(ids(&store).await, ["a"]);
    store.close().await.unwrap();
    let names = std::fs::read_dir(place.path().parent().unwrap()).unwrap();
    assert_eq!(names.count(), 1, "only the database file is left, without a WAL");
    let marks: i64 =
        place.raw().query_row("SELECT count(*) FROM writer", [], |row| row.get(0)).unwrap();
    assert_eq!(marks, 0);
    rejects_everything(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn old_commit_marks_are_deleted() {
    let place = Place::new();
    drop(place.open());
    let day = 24 * 3_600 * 1_000_000_i64;
    let now = windlass_store::SystemClock.now().micros();
    for (id, at) in [("old", now - 8 * day), ("young", now - 6 * day)] {
        let made = "INSERT INTO writer (id, batch, at, reopened) VALUES (?, 1, ?, 0)";
        place.raw().execute(made, (id, at)).unwrap();
    }
    drop(place.open());
    let left: String =
        place.raw().query_row("SELECT id FROM writer", [], |row| row.get(0)).unwrap();
    assert_eq!(left, "young");
}

#[tokio::test]
async fn an_ended_transaction_rejects_loads() {
    let faults = crate::fixture::Faults::default();
    let place = Place::new();
    let store = place.open_with(faults.options());
    faults.plan("sqlite.load", windlass_store::Fault::Io);
    let mut tx = store.begin().await.unwrap();
    let wanted = Arc::new(LoadRequest::default());
    for _ in 0..2 {
        let error = tx.load(wanted.clone()).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
    drop(tx);
    must(&store, create("a")).await;
}
