//! Statements that were planned on empty tables stay good when the tables are full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Cancel, Claim, Complete, Create, NewTask};
use windlass_core::{Index, PublicState, Range, Scan, Table, TableSpec, Tenant, Wanted};
use windlass_engine::{Config, Engine, TaskFilter};
use windlass_store::Store;
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

/// How many rows each table gets; a tenth of them is in the range that is read.
const ROWS: usize = 2_000;
const PAGE: usize = 10;

/// A page of the range that `fill_all` puts a tenth of the rows into.
fn scan(index: Index) -> Scan {
    // What is due is one queue; of the others, the first columns say what they belong to.
    let same = index.queue_columns().unwrap_or(2);
    let value = |column: &&str| if *column == "tenant" { "t" } else { "x0" }.into();
    let prefix = index.spec().columns[..same].iter().map(value).collect();
    Scan { range: Range { index, prefix, until: None }, after: None, limit: PAGE }
}

/// Rows that no rule would write: what the plans are made for is only how many there are.
fn fill_all(server: &Server) {
    for table in Table::ALL {
        let TableSpec { name, key, columns, numbers, .. } = table.spec();
        let last = key[key.len() - 1];
        let value = |column: &&str| match *column {
            column if numbers.contains(&column) => "n".to_owned(),
            column if column == last => "lpad(n::text, 6, '0')".to_owned(),
            "tenant" => "'t'".to_owned(),
            _ => "'x' || n % 10".to_owned(),
        };
        let all = [*key, columns].concat();
        let values: Vec<_> = all.iter().map(value).collect();
        let (names, values) = (all.join(", "), values.join(", "));
        server.sql(&format!(
            "INSERT INTO windlass.{name} ({names}, version, schema, body) \
             SELECT {values}, 1, 1, '{{}}' FROM generate_series(1, {ROWS}) AS n"
        ));
    }
}

/// The index of the database that serves an index of the specs.
fn serving(server: &Server, index: Index) -> String {
    let (table, spec) = (index.table().spec(), index.spec());
    if spec.columns == table.key {
        return format!("{}_pkey", table.name);
    }
    let text = format!(
        "SELECT relname FROM pg_index JOIN pg_class ON oid = indexrelid \
         WHERE indrelid = 'windlass.{}'::regclass AND indpred IS NOT NULL \
         AND pg_get_indexdef(indexrelid) LIKE '%({})%'",
        table.name,
        spec.columns.join(", ")
    );
    server.sql(&text)
}

#[tokio::test]
async fn every_index_serves_its_scans() {
    let server = Server::start();
    let options = Options { connections: 1, ..Options::default() };
    let store = PostgresStore::open_with(server.url().parse().unwrap(), options).await.unwrap();
    let indexes = Table::ALL.iter().flat_map(|table| table.spec().indexes);
    let indexes: Vec<Index> = indexes.map(|spec| spec.index).collect();
    let scans = || indexes.iter().copied().map(scan).collect();
    let look = async || {
        let wanted = Arc::new(Wanted { scans: scans(), ..Wanted::default() });
        let loaded = store.begin().await.unwrap().load(wanted).await.unwrap();
        loaded.pages.iter().map(Vec::len).collect::<Vec<_>>()
    };
    // Planned on nothing, and again on all of it.
    assert_eq!(look().await, vec![0; indexes.len()]);
    fill_all(&server);
    assert_eq!(look().await, vec![PAGE; indexes.len()]);
    store.close().await.unwrap();
    let served: Vec<String> = indexes.iter().map(|index| serving(&server, *index)).collect();
    let (tables, lines) = read_so_far(&server).await;
    assert!(tables.values().all(|rows| *rows == 0), "{tables:?}");
    let page = PAGE as u64;
    for name in &served {
        assert!((page..=2 * page).contains(&lines[name]), "{} lines of {name}", lines[name]);
    }
    for (name, read) in lines.iter().filter(|(name, _)| !served.contains(name)) {
        assert_eq!(*read, 0, "lines of {name}");
    }
}
