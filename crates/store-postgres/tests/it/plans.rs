//! Statements planned on empty tables must stay efficient when the tables are full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Cancel, Claim, Complete, Create, NewTask};
use windlass_core::{
    Index, LoadRequest, PublicState, Range, RowKey, Scan, Table, TableSpec, Tenant, Value,
};
use windlass_engine::{Config, Engine, TaskFilter};
use windlass_store::Store;
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::postgres::Server;

use crate::stage::{create, key};

const TASKS: u64 = 3_000;
/// Maximum number of index entries read per task, in each index.
const LINES_PER_TASK: u64 = 12;

/// An engine with one connection that has planned its statements on empty tables.
async fn planned_on_nothing(server: &Server) -> Engine {
    let options = Options { connections: 1, ..Options::default() };
    let config = server.url().parse().unwrap();
    let store = PostgresStore::open_with(config, options).await.unwrap();
    let config = Config { background: false, ..Config::default() };
    let engine = Engine::with_store(store, config).await.unwrap();
    for n in 0..3 {
        engine.submit(create(&format!("first {n}"))).await.unwrap();
        work(&engine, 1).await;
    }
    engine
}

/// Claims up to `limit` tasks and completes them.
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

/// Rows read per table without an index, and per index. A session reports them when it ends.
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
async fn plans_made_on_empty_tables_read_only_what_they_need() {
    let server = Server::start();
    let engine = planned_on_nothing(&server).await;
    reads_no_more_than_it_touches(&server, engine).await;
}

/// ANALYZE on an empty table makes a sequential scan look better than without statistics.
#[tokio::test]
async fn plans_made_on_analyzed_empty_tables_are_replaced() {
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
        assert_eq!(rows, 0, "{table} was read sequentially");
    }
    for (index, lines) in indexes {
        assert!(lines <= LINES_PER_TASK * TASKS, "{lines} entries of {index}");
    }
}

/// Tasks of a rare state are found without scanning the others, and ready tasks are counted without
/// reading those that are not ready.
#[tokio::test]
async fn a_list_reads_only_what_it_returns() {
    const LOOKS: u64 = 100;
    let server = Server::start();
    let engine = planned_on_nothing(&server).await;
    let tenant = Tenant::default();
    let cancelled = TaskFilter { state: Some(PublicState::Cancelled), ..TaskFilter::default() };
    // Plans the statements on empty tables.
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
        assert!(lines <= LINES_PER_TASK * TASKS, "{lines} entries of {index} in {LOOKS} lists");
    }
}

/// Rows per table; a tenth of them is in the scanned range.
const ROWS: usize = 2_000;
const PAGE: usize = 10;

/// A page of the range that contains a tenth of the rows of `fill_all`.
fn scan(index: Index) -> Scan {
    // The due index is one queue; in the others, the first columns identify the owner.
    let same = index.queue_columns().unwrap_or(2);
    let value = |column: &&str| if *column == "tenant" { "t" } else { "x0" }.into();
    let prefix = index.spec().columns[..same].iter().map(value).collect();
    Scan { range: Range { index, prefix, until: None }, after: None, limit: PAGE }
}

/// Rows that no rule would write: only their number matters for the plans.
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

/// The database index that serves an index spec.
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
        let wanted = Arc::new(LoadRequest { scans: scans(), ..LoadRequest::default() });
        let loaded = store.begin().await.unwrap().load(wanted).await.unwrap();
        loaded.pages.iter().map(Vec::len).collect::<Vec<_>>()
    };
    // Planned on empty tables, and used on full ones.
    assert_eq!(look().await, vec![0; indexes.len()]);
    fill_all(&server);
    assert_eq!(look().await, vec![PAGE; indexes.len()]);
    store.close().await.unwrap();
    let served: Vec<String> = indexes.iter().map(|index| serving(&server, *index)).collect();
    let (tables, lines) = read_so_far(&server).await;
    assert!(tables.values().all(|rows| *rows == 0), "{tables:?}");
    let page = PAGE as u64;
    for name in &served {
        assert!((page..=2 * page).contains(&lines[name]), "{} entries of {name}", lines[name]);
    }
    for (name, read) in lines.iter().filter(|(name, _)| !served.contains(name)) {
        assert_eq!(*read, 0, "entries of {name}");
    }
}

/// The key of row `n` of `fill_all`.
fn key_of_row(table: Table, n: usize) -> RowKey {
    let key = table.spec().key;
    let value = |(at, column): (usize, &&str)| match *column {
        _ if at + 1 == key.len() => Value::from(format!("{n:06}").as_str()),
        "tenant" => "t".into(),
        _ => format!("x{}", n % 10).as_str().into(),
    };
    RowKey { table, values: key.iter().enumerate().map(value).collect() }
}

/// A lookup planned on empty tables reads only the entries of its keys when the tables are full.
#[tokio::test]
async fn every_key_lookup_uses_the_primary_key() {
    let server = Server::start();
    let options = Options { connections: 1, ..Options::default() };
    let store = PostgresStore::open_with(server.url().parse().unwrap(), options).await.unwrap();
    let of_table = |table: &Table| (1..=PAGE).map(|n| key_of_row(*table, n)).collect();
    let rows: Vec<RowKey> = Table::ALL.iter().flat_map(of_table as fn(&_) -> Vec<_>).collect();
    let look = async || {
        let wanted = LoadRequest { rows: rows.clone(), ..LoadRequest::default() };
        store.begin().await.unwrap().load(Arc::new(wanted)).await.unwrap().rows.len()
    };
    // The first and the second transaction of a connection plan their statements; the third uses
    // the plans of the second.
    assert_eq!((look().await, look().await), (0, 0));
    fill_all(&server);
    assert_eq!(look().await, rows.len());
    store.close().await.unwrap();
    let (tables, lines) = read_so_far(&server).await;
    assert!(tables.values().all(|rows| *rows == 0), "{tables:?}");
    for (name, read) in lines {
        // A contended record is read once more to lock it.
        let most = if name.ends_with("_pkey") { 2 * PAGE as u64 } else { 0 };
        assert!(read <= most, "{read} entries of {name}");
    }
}
