//! Nodes registered in a shared database.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::HeartbeatNode;
use windlass_core::{Command, Node, Outcome};
use windlass_engine::{Config, Engine};
use windlass_store::{RoundTripStats, Store};
use windlass_store_postgres::{FORMAT, PostgresStore};
use windlass_store_test::execute;
use windlass_store_test::postgres::Server;

/// Short, so that a dead node is soon declared dead.
const EVERY: Duration = Duration::from_millis(200);

async fn node(server: &Server, name: &str) -> Engine {
    let store = PostgresStore::open(&server.url()).await.unwrap();
    let node_name = Some(name.to_owned());
    let config = Config { node_name, heartbeat_interval: EVERY, ..Config::default() };
    Engine::with_store(store, config).await.unwrap()
}

/// Polls until the registered nodes are these, in start order.
async fn until(engine: &Engine, names: &[&str]) -> Vec<Arc<Node>> {
    loop {
        let nodes = engine.nodes(None, 100).await.unwrap();
        if nodes.iter().map(|node| node.name.as_str()).eq(names.iter().copied()) {
            return nodes;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn two_nodes_see_each_other_until_one_shuts_down() {
    let server = Server::start();
    let (one, two) = (node(&server, "one").await, node(&server, "two").await);
    let nodes = until(&one, &["one", "two"]).await;
    until(&two, &["one", "two"]).await;
    assert_ne!(nodes[0].id, nodes[1].id);
    assert_eq!((nodes[0].pid, nodes[0].format), (std::process::id(), FORMAT));
    assert!(nodes[0].started_at <= nodes[0].seen_at && nodes[0].seen_at < nodes[0].due_at);
    two.shutdown().await.unwrap();
    let left = one.nodes(None, 100).await.unwrap();
    assert!(left.iter().all(|node| node.name == "one"), "{left:?}");
    one.shutdown().await.unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM windlass.node"), "0");
}

#[tokio::test]
async fn a_dead_node_is_removed_by_another_at_its_due_time() {
    let server = Server::start();
    let (gone, stays) = (node(&server, "gone").await, node(&server, "stays").await);
    until(&stays, &["gone", "stays"]).await;
    drop(gone);
    let mut due_at = 0;
    loop {
        let nodes = stays.nodes(None, 100).await.unwrap();
        let Some(node) = nodes.iter().find(|node| node.name == "gone") else { break };
        due_at = node.due_at.micros();
    }
    let last_commit: i64 = server.sql("SELECT last_value FROM windlass.clock").parse().unwrap();
    assert!(due_at > 0 && last_commit >= due_at, "{last_commit} is before {due_at}");
    until(&stays, &["stays"]).await;
    stays.shutdown().await.unwrap();
}

fn beat(id: usize) -> Command {
    HeartbeatNode {
        id: format!("n{id:03}").into(),
        name: "host".into(),
        pid: 1,
        version: "1.0.0".into(),
        format: 2,
        up_ms: 0,
        heartbeat_interval_ms: 3_600_000,
    }
    .into()
}

async fn round_trips(store: &dyn Store) -> RoundTripStats {
    store.describe().await.unwrap().round_trips.unwrap()
}

/// Statements and round trips of one command in its own batch. Sometimes statements are replanned,
/// which costs one more.
async fn cost(store: &dyn Store, command: &Command) -> (u64, u64) {
    let costs =
        [once(store, command).await, once(store, command).await, once(store, command).await];
    costs.into_iter().min().unwrap()
}

async fn once(store: &dyn Store, command: &Command) -> (u64, u64) {
    let asking = round_trips(store).await;
    let before = round_trips(store).await;
    execute(store, command).await.unwrap().unwrap();
    let after = round_trips(store).await;
    (
        after.statements + asking.statements - 2 * before.statements,
        after.round_trips + asking.round_trips - 2 * before.round_trips,
    )
}

#[tokio::test]
async fn a_heartbeat_costs_the_same_for_any_number_of_nodes() {
    let server = Server::start();
    let store = PostgresStore::open(&server.url()).await.unwrap();
    execute(&store, &beat(0)).await.unwrap().unwrap();
    let alone = cost(&store, &beat(0)).await;
    for id in 1..50 {
        execute(&store, &beat(id)).await.unwrap().unwrap();
    }
    assert_eq!(cost(&store, &beat(0)).await, alone);
    let (statements, round_trips) = alone;
    assert!(statements <= 12 && round_trips <= 3, "{alone:?}");
    let outcome = execute(&store, &beat(7)).await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::NodeRegistered { joined: false, nodes: 50, format: 2 });
}

/// Lets the server count the writes of each node.
const COUNT_BEATS: &str = "CREATE TABLE public.beat (node text);
    CREATE FUNCTION public.beat() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.beat VALUES (NEW.id); RETURN NULL; END $$;
    CREATE TRIGGER beat AFTER INSERT OR UPDATE ON windlass.node
        FOR EACH ROW EXECUTE FUNCTION public.beat()";

/// Commits of this handle, and heartbeats of the only node.
async fn counts(server: &Server, store: &dyn Store) -> (i64, i64) {
    let commits = store.describe().await.unwrap().commits;
    let beats = server.sql("SELECT count(*) FROM public.beat");
    (i64::try_from(commits).unwrap(), beats.parse().unwrap())
}

#[tokio::test]
async fn an_idle_engine_commits_only_heartbeats() {
    const BEATS: i64 = 12;
    let server = Server::start();
    let store = Arc::new(PostgresStore::open(&server.url()).await.unwrap());
    server.sql(COUNT_BEATS);
    let config = Config { heartbeat_interval: EVERY, ..Config::default() };
    let engine = Engine::with_shared_store(store.clone(), config).await.unwrap();
    let (mut first, mut last) = (counts(&server, &*store).await, (0, 0));
    while last.1 < first.1 + BEATS {
        last = counts(&server, &*store).await;
        if first.1 == 0 {
            first = last;
        }
    }
    let (commits, beats) = (last.0 - first.0, last.1 - first.1);
    // The latest commit may be in only one of the two numbers.
    assert!((commits - beats).abs() <= 1, "{commits} commits for {beats} heartbeats");
    engine.shutdown().await.unwrap();
}

/// A heartbeat reads all nodes, and blocks none of them.
#[tokio::test]
async fn concurrent_heartbeats_see_each_other() {
    let server = Server::start();
    let store = PostgresStore::open(&server.url()).await.unwrap();
    for id in 0..3 {
        execute(&store, &beat(id)).await.unwrap().unwrap();
    }
    let one = crate::stage::prepare(&store, beat(0)).await;
    let outcome = execute(&store, &beat(1)).await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::NodeRegistered { joined: false, nodes: 3, format: 2 });
    one.commit().await.unwrap();
}
