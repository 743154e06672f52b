//! `node list`.

use std::time::Duration;

use windlass::{Config, Engine};
use windlass_store_test::postgres::Server;

use crate::test_store::TestStore;

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_on_a_file_is_not_a_node() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let output = "There is no node: an engine on a file registers none.\n";
    assert_eq!(store.ok("node list"), output);
    assert!(store.json("node list").is_empty());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_on_a_database_are_listed() {
    let server = Server::start();
    let store = TestStore::empty();
    let list = format!("node list --store {}", server.url());
    store.ok(&format!("migrate --store {}", server.url()));
    assert_eq!(store.ok(&list), "There is no node: no engine is running here.\n");
    let config = Config { node_name: Some("app-1".into()), ..Config::default() };
    let engine = Engine::open_with(&server.url().parse().unwrap(), config).await.unwrap();
    let registered = async {
        while engine.nodes(None, 1).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), registered).await.unwrap();
    let node = store.one(&list);
    assert_eq!((&node["name"], &node["pid"]), (&"app-1".into(), &std::process::id().into()));
    assert_eq!(node["format"], windlass_store_postgres::FORMAT);
    assert!(node["started_at"].is_string() && node["seen_at"].is_string(), "{node}");
    assert!(node["overdue_ms"].is_u64() && node["id"].is_string(), "{node}");
    let table = store.ok(&list);
    for part in ["id", "last seen", "app-1", &std::process::id().to_string()] {
        assert!(table.contains(part), "{part}: {table}");
    }
    engine.shutdown().await.unwrap();
    assert!(store.json(&list).is_empty(), "it has deregistered, and commands are not nodes");
}
