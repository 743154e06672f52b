//! Commits with unknown outcomes: they are looked up before any reply is sent.

use windlass_core::command::Created;
use windlass_core::{Outcome, Timestamp};
use windlass_store::{CommitId, Store, StoreError};
use windlass_store_postgres::PostgresStore;
use windlass_store_test::postgres::{Server, url};

use crate::proxy::{Loss, Proxy};
use crate::stage::{create, key, must, open, prepare, quiet_engine};

/// A task is created while its commit is lost. The reply must be that of a task created once: a
/// blind retry after a successful commit would report a duplicate, and assuming success after a
/// failed one would lose the task.
async fn made_once(loss: Loss, restart: bool) {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let store = PostgresStore::open(&url(proxy.socket())).await.unwrap();
    // Prepares the statements on the connection.
    for id in ["first", "second"] {
        must(&store, create(id)).await;
    }
    let engine = quiet_engine(store).await;
    let mut moment = proxy.lose(loss);
    let caller = engine.clone();
    let submitted = tokio::spawn(async move { caller.submit(create("t")).await });
    moment.reached().await;
    if restart {
        server.control("restart -m immediate");
    }
    moment.pass();
    let answer = submitted.await.unwrap().unwrap();
    let once = Created { id: "t".into(), duplicate: false };
    assert_eq!(answer, Outcome::Created(vec![once]), "{loss:?}, restart {restart}");
    assert!(engine.task(&key("t")).await.unwrap().is_some());
    let logged = server.sql("SELECT string_agg(task, ' ' ORDER BY seq) FROM windlass.event");
    assert_eq!(logged, "first second t");
}

#[tokio::test]
async fn a_commit_with_a_lost_response_took_effect() {
    made_once(Loss::Response, false).await;
}

#[tokio::test]
async fn a_commit_that_did_not_arrive_took_no_effect() {
    made_once(Loss::Request, false).await;
}

#[tokio::test]
async fn a_commit_with_a_response_lost_in_a_crash_took_effect() {
    made_once(Loss::Response, true).await;
}

#[tokio::test]
async fn a_commit_lost_in_a_crash_took_no_effect() {
    made_once(Loss::Request, true).await;
}

/// After a crash the server reuses transaction ids that left no trace: a commit under such an id
/// proves nothing about the first transaction.
#[tokio::test]
async fn a_transaction_id_reused_after_a_crash_proves_nothing() {
    let server = Server::start();
    let store = open(&server).await;
    must(&store, create("first")).await;
    must(&store, create("second")).await;
    let lost = prepare(&store, create("t")).await;
    server.control("restart -m immediate");
    let Err(StoreError::OutcomeUnknown(commit_id)) = lost.commit().await else { panic!() };
    for _ in 0..20 {
        server.sql("SELECT pg_current_xact_id()");
    }
    let outcome = store.outcome(&commit_id).await;
    assert!(!matches!(outcome, Ok(true)), "the task was not created");
}

#[tokio::test]
async fn a_batch_cut_off_before_its_commit_took_no_effect() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    must(&store, create("first")).await;
    let cut = prepare(&store, create("t")).await;
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE state = 'idle in transaction'",
    );
    match cut.commit().await {
        Err(StoreError::OutcomeUnknown(commit_id)) => {
            assert!(!store.outcome(&commit_id).await.unwrap());
        }
        Err(StoreError::Unavailable(_)) => {}
        other => panic!("{other:?}"),
    }
    must(&other, create("t")).await;
}

/// Resetting the statistics of a server looks like a server restart.
#[tokio::test]
async fn a_commit_in_flight_is_not_reported_as_lost() {
    let server = Server::start();
    let store = open(&server).await;
    let (client, _) = windlass_store_postgres::connect(&server.url()).await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    let text = "SELECT pg_current_xact_id()::text::bigint, \
        (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint";
    let row = client.query_one(text, &[]).await.unwrap();
    let (number, life): (i64, i64) = (row.get(0), row.get(1));
    let commit_id =
        CommitId { number: number.cast_unsigned(), incarnation: life, at: Timestamp::default() };
    store.outcome(&commit_id).await.unwrap_err();
    server.sql("SELECT pg_stat_reset_shared('bgwriter')");
    store.outcome(&commit_id).await.unwrap_err();
    client.batch_execute("ROLLBACK").await.unwrap();
    assert!(!store.outcome(&commit_id).await.unwrap());
}
