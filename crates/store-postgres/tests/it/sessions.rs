//! The session settings of the store, as seen by the database.

use std::time::Duration;

use windlass_core::Table;
use windlass_engine::{Config, Engine};
use windlass_store::{Query, Store, StoreError};
use windlass_store_test::postgres::Server;

use crate::stage::{create, must, open, open_impatient};

/// A column default that records the settings of the session that writes a row.
async fn seen_by_a_batch(server: &Server, settings: &[&str]) -> Vec<String> {
    let store = open(server).await;
    let seen: Vec<_> = settings.iter().map(|name| format!("current_setting('{name}')")).collect();
    let seen = seen.join(" || ' ' || ");
    server.sql(&format!("ALTER TABLE windlass.event ADD COLUMN seen text DEFAULT {seen}"));
    must(&store, create("t")).await;
    let seen = server.sql("SELECT seen FROM windlass.event ORDER BY seq DESC LIMIT 1");
    settings.iter().zip(seen.split(' ')).map(|(name, value)| format!("{name}={value}")).collect()
}

#[tokio::test]
async fn a_batch_sets_its_timeouts_and_planner_settings() {
    let server = Server::start();
    let names = [
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "enable_seqscan",
        "enable_hashjoin",
        "enable_mergejoin",
        "enable_bitmapscan",
        "jit",
        "plan_cache_mode",
        "synchronous_commit",
    ];
    let expected = [
        "statement_timeout=5s",
        "lock_timeout=1s",
        "idle_in_transaction_session_timeout=5s",
        "enable_seqscan=off",
        "enable_hashjoin=off",
        "enable_mergejoin=off",
        "enable_bitmapscan=off",
        "jit=off",
        "plan_cache_mode=force_generic_plan",
        "synchronous_commit=on",
    ];
    assert_eq!(seen_by_a_batch(&server, &names).await, expected);
}

#[tokio::test]
async fn a_commit_is_durable_even_if_the_server_default_is_not() {
    for (setting, expected) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
    {
        let server = Server::start_with(&[&format!("synchronous_commit={setting}")]);
        let seen = seen_by_a_batch(&server, &["synchronous_commit"]).await;
        assert_eq!(seen, [format!("synchronous_commit={expected}")]);
    }
}

/// A slow list times out.
#[tokio::test]
async fn a_slow_list_times_out() {
    let server = Server::start();
    let store = open_impatient(&server, Duration::from_millis(200)).await;
    must(&store, create("t")).await;
    server.sql(
        "ALTER TABLE windlass.lane RENAME TO slow; CREATE VIEW windlass.lane AS \
         SELECT slow.* FROM windlass.slow CROSS JOIN LATERAL (SELECT pg_sleep(20)) AS nap",
    );
    let listed = store.query(&Query::all(Table::Lane, 10)).await;
    assert!(matches!(listed, Err(StoreError::Rejected(_))), "{listed:?}");
}

/// So does one that waits for a lock.
#[tokio::test]
async fn a_list_that_waits_for_a_lock_times_out() {
    let server = Server::start();
    let store = open_impatient(&server, Duration::from_millis(200)).await;
    must(&store, create("t")).await;
    let (client, connection) =
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE windlass.task").await.unwrap();
    let all = Query::all(Table::Task, 10);
    let listed = tokio::time::timeout(Duration::from_secs(20), store.query(&all)).await;
    assert!(listed.expect("the list ends").is_err());
}

/// A slow command does not fail others in its batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_command_fails_alone() {
    one_slow_command(Duration::from_millis(500)).await;
}

/// The same with a long timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_very_slow_command_fails_alone() {
    one_slow_command(Duration::from_secs(5)).await;
}

async fn one_slow_command(patience: Duration) {
    let server = Server::start();
    let store = open_impatient(&server, patience).await;
    server.sql(
        "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF NEW.id = 'slow' THEN PERFORM pg_sleep(20); END IF; RETURN NEW; END $$; \
         CREATE TRIGGER nap BEFORE INSERT ON windlass.task FOR EACH ROW EXECUTE FUNCTION nap()",
    );
    let engine = Engine::with_store(store, Config::default()).await.unwrap();
    let calls = (0..50).map(|n| {
        let id = if n == 31 { "slow".to_owned() } else { n.to_string() };
        let engine = engine.clone();
        tokio::spawn(async move { engine.submit(create(&id)).await })
    });
    for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        let outcome = call.await.unwrap();
        assert_eq!(outcome.is_err(), n == 31, "{n}: {outcome:?}");
    }
}
