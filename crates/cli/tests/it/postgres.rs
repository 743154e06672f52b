//! The commands on Postgres: their output is the same as on a file.

use serde_json::json;
use windlass::FailureClass;
use windlass_store_test::postgres::Server;

use crate::test_store::{TestStore, claim, fail};

#[tokio::test(flavor = "multi_thread")]
async fn tasks_lanes_and_the_log() {
    let server = Server::start();
    let store = TestStore::at(server.url());
    assert_eq!(store.one("task create k --id a --payload 1")["duplicate"], false);
    store.ok("task create k --id b --delay 1h --lane slow");
    store.ok("task create k --id c --attempts 1");
    assert_eq!(store.json("task list").len(), 3);
    let shown = store.one("task show b");
    assert_eq!((&shown["state"], &shown["lane"]), (&json!("delayed"), &json!("slow")));
    assert_eq!(store.one("task show a")["payload"]["json"], 1);
    assert_eq!(store.one("task cancel b")["state"], "cancelled");
    assert_eq!(store.run("task show nope").code, 4);

    assert_eq!(store.one("lane pause default"), json!({ "lane": "default", "state": "paused" }));
    assert_eq!(store.one("task why a")["why"], "lane_paused");
    store.ok("lane resume default");
    store.ok("lane limit default 5");

    let engine = store.application().await;
    for _ in 0..2 {
        let task = claim(&engine, "w", "default").await;
        fail(&engine, &task, FailureClass::Permanent, "bounced").await;
    }
    assert_eq!(store.json("dlq list").len(), 2);
    assert_eq!(store.ok("dlq replay --all"), "Replayed 2 tasks.\n");
    engine.shutdown().await.unwrap();

    let events = store.json("events --limit 100");
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert!(events.iter().any(|event| event["event"] == "cancelled"), "{events:?}");
    let cursor = events[2]["cursor"].as_str().unwrap().to_owned();
    assert_eq!(store.json(&format!("events --after {cursor}"))[0]["seq"], 4);

    let stats = store.one("stats");
    assert_eq!((&stats["backend"], &stats["tasks"]["waiting"]), (&json!("postgres"), &json!(2)));
    assert_eq!(stats["durability"], "fsync=on, synchronous_commit=on");
    assert_eq!(stats["store"], server.url());

    let renewed = store.one("store reset-cursors");
    assert_ne!(renewed["incarnation"], stats["log"]["incarnation"]);
    assert!(store.run(&format!("events --after {cursor}")).err.contains("cursor_expired"));
}

#[test]
fn any_program_is_a_worker() {
    let server = Server::start();
    let store = TestStore::at(server.url());
    store.ok("task create shout --id a --payload 41");
    store.ok("task create shout --id b --payload 42");
    let done = store.ok("worker exec --kind shout --exit-when-idle=100ms --json -- cat");
    assert_eq!(done.lines().count(), 2, "{done}");
    let shown = store.one("task show b");
    assert_eq!((&shown["state"], &shown["result"]["json"]), (&json!("completed"), &json!(42)));
}

#[test]
fn an_unreachable_server() {
    let store = TestStore::at("postgres://user:s3cret@localhost:1/none".to_owned());
    for line in ["task list", "stats", "migrate"] {
        let output = store.run(line);
        assert!(
            output.code == 1 && output.err.contains("[store_unavailable]"),
            "{line}: {output:?}"
        );
        assert!(!output.err.contains("s3cret"), "{line}: {output:?}");
    }
}
