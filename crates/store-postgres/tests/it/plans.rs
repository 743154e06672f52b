//! Statements that were planned on empty tables stay good when the tables are full.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::command::{Cancel, Claim, Complete, Create, NewTask};
use windlass_core::{PublicState, Tenant};
use windlass_engine::{Config, Engine, TaskFilter};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::postgres::Server;

use crate::stage::{create, key};

const TASKS: u64 = 3_000;
/// How many of its lines an index may give for each task that goes through, whatever for.
const LINES_PER_TASK: u64 = 12;

/// An engine with one connection, which has planned all that it needs while there was nothing yet.
async fn planned_on_nothing(server: &Server) -> Engine {
    let options = Options { connections: 1, ..Options::default() };
    let config = server.url().parse().unwrap();
    let store = PostgresStore::open_with(config, options).await.unwrap();
    let config = Config { background: false, ..Config::default() };
    let engine = Engine::start(store, config).await.unwrap();
    for n in 0..3 {
        engine.submit(create(&format!("first {n}"))).await.unwrap();
        work(&engine, 1).await;
    }
    engine
}

/// Claims so many tasks and completes them.
async fn work(engine: &Engine, limit: u32) -> usize {
    let claim = Claim { limit, ..Claim::new("w") };
    let claimed = engine.claim(claim, Duration::ZERO).await.unwrap();
    let complete =
        claimed.iter().map(|claimed| Complete { fence: claimed.task.fence(), result: None }.into());
    for answer in engine.submit_many(complete.collect()).await.unwrap() {
        answer.unwrap();
    }
    claimed.len()
}

async fn fill(engine: &Engine) {
    for thousand in 0..TASKS / 1_000 {
        let tasks = (0..1_000).map(|n| NewTask::new(format!("{thousand}-{n:03}"), "k")).collect();
        engine.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    }
}

/// What was read of each table without an index, and of each index. A session tells it when it ends.
async fn read_so_far(server: &Server) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'client backend' \
        AND pid <> pg_backend_pid()";
    server.until(gone).await;
    let table = |text: &str| {
        let read = |line: &str| {
            let (name, number) = line.split_once('|').unwrap();
            (name.to_owned(), number.parse().unwrap())
        };
        server.sql(text).lines().map(read).collect::<BTreeMap<String, u64>>()
    };
    (
        table("SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE relname <> 'meta'"),
        table("SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes"),
    )
}

#[tokio::test]
async fn what_was_planned_on_empty_tables_reads_no_more_than_it_touches() {
    let server = Server::start();
    let engine = planned_on_nothing(&server).await;
    reads_no_more_than_it_touches(&server, engine).await;
}

/// Statistics that say so make an empty table look better than one that nobody has looked at.
#[tokio::test]
async fn what_was_planned_on_tables_known_to_be_empty_is_planned_again() {
    let server = Server::start();
    PostgresStore::open(&server.url()).await.unwrap();
    server.sql("VACUUM ANALYZE");
    let engine = planned_on_nothing(&server).await;
    reads_no_more_than_it_touches(&server, engine).await;
}

async fn reads_no_more_than_it_touches(server: &Server, engine: Engine) {
    fill(&engine).await;
    while work(&engine, 50).await > 0 {}
    engine.shutdown().await.unwrap();
    let (tables, indexes) = read_so_far(server).await;
    assert!(tables.contains_key("task") && indexes["task_pkey"] > TASKS, "{tables:?} {indexes:?}");
    for (table, rows) in tables {
        assert_eq!(rows, 0, "{table} was read from end to end");
    }
    for (index, lines) in indexes {
        assert!(lines <= LINES_PER_TASK * TASKS, "{lines} lines of {index}");
    }
}

/// The few tasks of a rare state are found without a walk through all of the others, and what is
/// ready is counted without a look at what is not.
#[tokio::test]
async fn a_list_reads_what_it_shows() {
    const LOOKS: u64 = 100;
    let server = Server::start();
    let engine = planned_on_nothing(&server).await;
    let tenant = Tenant::default();
    let cancelled = TaskFilter { state: Some(PublicState::Cancelled), ..TaskFilter::default() };
    // Planned while there is nothing to list.
    assert!(engine.tasks(&tenant, &cancelled, None, 100).await.unwrap().is_empty());
    assert!(engine.count_ready(&tenant).await.unwrap().is_empty());
    fill(&engine).await;
    while work(&engine, 1_000).await > 0 {}
    for id in ["x", "y", "z"] {
        engine.submit(create(id)).await.unwrap();
        engine.submit(Cancel { task: key(id), reason: "no".into() }).await.unwrap();
    }
    engine.submit(create("ready")).await.unwrap();
    for _ in 0..LOOKS {
        assert_eq!(engine.tasks(&tenant, &cancelled, None, 100).await.unwrap().len(), 3);
        assert_eq!(engine.count_ready(&tenant).await.unwrap(), [("default".into(), 1)].into());
    }
    engine.shutdown().await.unwrap();
    let (tables, indexes) = read_so_far(&server).await;
    assert!(tables.values().all(|rows| *rows == 0), "{tables:?}");
    for (index, lines) in indexes {
        assert!(lines <= LINES_PER_TASK * TASKS, "{lines} lines of {index} in {LOOKS} looks");
    }
}
