//! `node list`.

use std::time::Duration;

use windlass::{Config, Engine};
use windlass_store_test::postgres::Server;

use crate::place::Place;

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_on_a_file_is_not_a_node() {
    let place = Place::empty();
    let engine = place.application().await;
    let said = "There is no node: an engine on a file registers none.\n";
    assert_eq!(place.ok("node list"), said);
    assert!(place.json("node list").is_empty());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_on_a_database_are_listed() {
    let server = Server::start();
    let place = Place::empty();
    let list = format!("node list --store {}", server.url());
    place.ok(&format!("migrate --store {}", server.url()));
    assert_eq!(place.ok(&list), "There is no node: no engine is running here.\n");
    let config = Config { node_name: Some("app-1".into()), ..Config::default() };
    let engine = Engine::open_with(&server.url().parse().unwrap(), config).await.unwrap();
    let registered = async {
        while engine.nodes(None, 1).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), registered).await.unwrap();
    let node = place.one(&list);
    assert_eq!((&node["name"], &node["pid"]), (&"app-1".into(), &std::process::id().into()));
    assert_eq!(node["format"], windlass_store_postgres::FORMAT);
    assert!(node["started_at"].is_string() && node["seen_at"].is_string(), "{node}");
    assert!(node["overdue_ms"].is_u64() && node["id"].is_string(), "{node}");
    let table = place.ok(&list);
    for part in ["id", "last seen", "app-1", &std::process::id().to_string()] {
        assert!(table.contains(part), "{part}: {table}");
    }
    engine.shutdown().await.unwrap();
    assert!(place.json(&list).is_empty(), "it has deregistered, and commands are not nodes");
}
