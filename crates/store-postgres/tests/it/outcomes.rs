//! Commits of which nobody knows what became: they are looked up before anybody is answered.

use windlass_core::command::Created;
use windlass_core::{Outcome, Timestamp};
use windlass_store::{Store, StoreError, Ticket};
use windlass_store_postgres::PostgresStore;
use windlass_store_test::postgres::{Server, url};

use crate::proxy::{Loss, Proxy};
use crate::stage::{create, key, must, open, prepare, quiet_engine};

/// A task is made while its commit is lost, with the database as the moment leaves it. The answer
/// must be that of a task that was made once: a blind second try of a commit that took effect would
/// find a duplicate, and trust in one that did not would lose the task.
async fn made_once(loss: Loss, restart: bool) {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let store = PostgresStore::open(&url(proxy.socket())).await.unwrap();
    // The same statements before, so that they are known to the connection.
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
async fn a_commit_whose_answer_is_lost_took_effect() {
    made_once(Loss::Answer, false).await;
}

#[tokio::test]
async fn a_commit_that_is_lost_on_its_way_did_not_take_effect() {
    made_once(Loss::Request, false).await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_with_the_server_took_effect() {
    made_once(Loss::Answer, true).await;
}

#[tokio::test]
async fn a_commit_that_is_lost_with_the_server_did_not_take_effect() {
    made_once(Loss::Request, true).await;
}

/// A server that comes back from a crash gives the numbers of transactions that left no trace to
/// others: that one of them was committed says nothing of the first.
#[tokio::test]
async fn a_number_that_is_given_again_after_a_crash_proves_nothing() {
    let server = Server::start();
    let store = open(&server).await;
    must(&store, create("first")).await;
    must(&store, create("second")).await;
    let lost = prepare(&store, create("t")).await;
    server.control("restart -m immediate");
    let Err(StoreError::OutcomeUnknown(ticket)) = lost.commit().await else { panic!() };
    for _ in 0..20 {
        server.sql("SELECT pg_current_xact_id()");
    }
    let outcome = store.outcome(&ticket).await;
    assert!(!matches!(outcome, Ok(true)), "it is not there");
}

#[tokio::test]
async fn a_batch_whose_connection_is_cut_before_its_commit_did_not_happen() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    must(&store, create("first")).await;
    let cut = prepare(&store, create("t")).await;
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE state = 'idle in transaction'",
    );
    match cut.commit().await {
        Err(StoreError::OutcomeUnknown(ticket)) => {
            assert!(!store.outcome(&ticket).await.unwrap());
        }
        Err(StoreError::Unavailable(_)) => {}
        other => panic!("{other:?}"),
    }
    must(&other, create("t")).await;
}

/// Who resets the statistics of a server makes it look as if it had started anew.
#[tokio::test]
async fn a_commit_that_is_under_way_is_not_taken_for_lost() {
    let server = Server::start();
    let store = open(&server).await;
    let (client, _) = windlass_store_postgres::connect(&server.url()).await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    let text = "SELECT pg_current_xact_id()::text::bigint, \
        (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint";
    let row = client.query_one(text, &[]).await.unwrap();
    let (number, life): (i64, i64) = (row.get(0), row.get(1));
    let ticket = Ticket { number: number.cast_unsigned(), life, at: Timestamp::default() };
    store.outcome(&ticket).await.unwrap_err();
    server.sql("SELECT pg_stat_reset_shared('bgwriter')");
    store.outcome(&ticket).await.unwrap_err();
    client.batch_execute("ROLLBACK").await.unwrap();
    assert!(!store.outcome(&ticket).await.unwrap());
}
