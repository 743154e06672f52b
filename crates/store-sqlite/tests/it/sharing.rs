use std::time::Duration;

use windlass_core::command::Cancel;
use windlass_core::{Command, TaskId, TaskKey, Tenant};
use windlass_store::{Notification, Store, StoreError};
use windlass_store_sqlite::Options;

use crate::fixture::{Place, create, execute, ids, must, prepare};

fn cancel(id: &str) -> Command {
    let task = TaskKey { tenant: Tenant::default(), id: TaskId::new(id) };
    Cancel { task, reason: "no more".into() }.into()
}

#[tokio::test]
async fn two_handles_see_what_the_other_commits() {
    let place = Place::new();
    let (one, two) = (place.open(), place.open());
    must(&one, create("a")).await;
    must(&two, create("b")).await;
    let again = execute(&two, &create("a")).await.unwrap();
    assert!(again.is_ok(), "a repeated create is a duplicate");
    assert_eq!(ids(&one).await, ["a", "b"]);
    assert_eq!(ids(&two).await, ["a", "b"]);
    assert_eq!(one.describe().await.unwrap().commits, 1);
}

#[tokio::test]
async fn a_batch_with_stale_reads_conflicts() {
    let place = Place::new();
    let (one, two) = (place.open(), place.open());
    must(&one, create("a")).await;
    for (stale, winner) in [(create("b"), create("b")), (cancel("a"), cancel("a"))] {
        let (tx, _, changes) = prepare(&one, &stale).await.unwrap();
        drop(tx);
        must(&two, winner).await;
        let tx = one.begin().await.unwrap();
        let lost = tx.commit(changes).await.unwrap_err();
        assert!(matches!(lost, StoreError::Conflict), "{stale:?}: {lost:?}");
    }
    // A rejection is also invalid if the records it read have changed.
    let (tx, rejected, changes) = prepare(&one, &create("a")).await.unwrap();
    drop(tx);
    assert!(changes.is_empty() && !changes.reads.is_empty(), "{rejected:?}");
    place.raw().execute("UPDATE task SET version = version + 1", []).unwrap();
    let tx = one.begin().await.unwrap();
    assert!(matches!(tx.commit(changes).await, Err(StoreError::Conflict)));
    assert_eq!(ids(&two).await, ["a", "b"]);
}

#[tokio::test]
async fn a_write_lock_held_too_long_is_reported() {
    let place = Place::new();
    let one = place.open();
    let two =
        place.open_with(Options { busy_timeout: Duration::from_millis(20), ..Options::default() });
    let held = one.begin().await.unwrap();
    assert!(matches!(two.begin().await, Err(StoreError::Unavailable(_))));
    drop(held);
    must(&two, create("a")).await;
}

#[tokio::test]
async fn handles_get_notices_of_each_other_but_not_their_own() {
    let place = Place::new();
    let (one, two) = (place.open(), place.open());
    let (mut of_one, mut of_two) = (one.notifications(), two.notifications());
    must(&one, create("a")).await;
    assert_eq!(of_two.next().await, Some(Notification::Anything));
    must(&two, create("b")).await;
    assert_eq!(of_one.next().await, Some(Notification::Anything));
    one.close().await.unwrap();
    assert_eq!(of_one.next().await, None, "its own commit sends no notification to it");
}
