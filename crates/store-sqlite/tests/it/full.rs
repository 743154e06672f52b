use std::time::{Duration, Instant};

use windlass_core::command::{Create, NewTask, TrimLog};
use windlass_core::{Command, Payload};
use windlass_store::{Fault, Store, StoreError};
use windlass_store_sqlite::{Options, SqliteStore};

use crate::fixture::{Faults, Place, create, execute, ids, must, seqs};

fn large(n: usize) -> Command {
    let payload = Some(Payload::json("x".repeat(20_000)));
    Create::one(NewTask { payload, ..NewTask::new(format!("{n:04}"), "email") }).into()
}

fn limited(max_pages: u32) -> Options {
    Options { max_pages: Some(max_pages), ..Options::default() }
}

/// Creates tasks until the disk is full; returns how many fit.
async fn fill(store: &SqliteStore) -> usize {
    for n in 0.. {
        match execute(store, &large(n)).await {
            Ok(outcome) => drop(outcome.unwrap()),
            Err(StoreError::Full) => return n,
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("the disk never filled up")
}

/// Retries while the disk is full.
async fn insist(store: &SqliteStore, command: Command) {
    let give_up_at = Instant::now() + Duration::from_secs(10);
    loop {
        match execute(store, &command).await {
            Ok(outcome) => return drop(outcome.unwrap()),
            Err(StoreError::Full) if Instant::now() < give_up_at => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_full_disk_rejects_writes_but_not_reads() {
    let place = Place::new();
    let store = place.open_with(limited(100));
    let fit = fill(&store).await;
    assert!(fit > 10, "{fit}");
    assert_eq!(ids(&store).await.len(), fit, "the failed commit left no trace");
    assert_eq!(seqs(&store).await.len(), fit);
    assert_eq!(store.describe().await.unwrap().commits, fit as u64);
    let rejected = store.begin().await.err();
    assert!(matches!(rejected, Some(StoreError::Full)), "{rejected:?}");
    drop(store);
    let store = place.open_with(limited(200));
    must(&store, large(fit)).await;
    assert_eq!(ids(&store).await.len(), fit + 1);
}

#[tokio::test]
async fn writes_resume_once_the_disk_has_room() {
    let place = Place::new();
    let store = place.open_with(limited(100));
    let fit = fill(&store).await;
    place.raw().execute("DELETE FROM payload", []).unwrap();
    insist(&store, large(fit)).await;
    must(&store, TrimLog { retention_ms: 0, page: 10 }).await;
    assert_eq!(ids(&store).await.len(), fit + 1);
}

#[tokio::test]
async fn a_full_disk_at_any_step_changes_nothing() {
    for step in ["sqlite.begin", "sqlite.load", "sqlite.commit.before"] {
        let faults = Faults::default();
        let place = Place::new();
        let store = place.open_with(faults.options());
        must(&store, create("a")).await;
        faults.plan(step, Fault::Full);
        let full = execute(&store, &create("b")).await;
        assert!(matches!(full, Err(StoreError::Full)), "{step}: {full:?}");
        assert_eq!(ids(&store).await, ["a"], "{step}");
        insist(&store, create("c")).await;
        must(&store, create("d")).await;
        assert_eq!(ids(&store).await, ["a", "c", "d"], "{step}");
    }
}

#[tokio::test]
async fn a_successful_commit_is_not_reported_as_full() {
    let faults = Faults::default();
    let place = Place::new();
    let store = place.open_with(faults.options());
    faults.plan("sqlite.commit.after", Fault::Full);
    must(&store, create("a")).await;
    must(&store, create("b")).await;
    assert_eq!(ids(&store).await, ["a", "b"]);
}
