//! The commands on Postgres: their output is the same as on a file.

use serde_json::json;
use windlass::FailureClass;
use windlass_store_test::postgres::Server;

use crate::place::{Place, claim, fail};

#[tokio::test(flavor = "multi_thread")]
async fn tasks_lanes_and_the_log() {
    let server = Server::start();
    let place = Place::at(server.url());
    assert_eq!(place.one("task create k --id a --payload 1")["duplicate"], false);
    place.ok("task create k --id b --after 1h --lane slow");
    place.ok("task create k --id c --attempts 1");
    assert_eq!(place.json("task list").len(), 3);
    let shown = place.one("task show b");
    assert_eq!((&shown["state"], &shown["lane"]), (&json!("delayed"), &json!("slow")));
    assert_eq!(place.one("task show a")["payload"]["json"], 1);
    assert_eq!(place.one("task cancel b")["state"], "cancelled");
    assert_eq!(place.run("task show nope").code, 4);

    assert_eq!(place.one("lane pause default"), json!({ "lane": "default", "state": "paused" }));
    assert_eq!(place.one("task why a")["why"], "lane_paused");
    place.ok("lane resume default");
    place.ok("lane limit default 5");

    let engine = place.application().await;
    for _ in 0..2 {
        let task = claim(&engine, "w", "default").await;
        fail(&engine, &task, FailureClass::Permanent, "bounced").await;
    }
    assert_eq!(place.json("dlq list").len(), 2);
    assert_eq!(place.ok("dlq replay --all"), "Replayed 2 tasks.\n");
    engine.shutdown().await.unwrap();

    let events = place.json("events --limit 100");
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert!(events.iter().any(|event| event["change"] == "cancelled"), "{events:?}");
    let cursor = events[2]["cursor"].as_str().unwrap().to_owned();
    assert_eq!(place.json(&format!("events --after {cursor}"))[0]["seq"], 4);

    let stats = place.one("stats");
    assert_eq!((&stats["backend"], &stats["tasks"]["waiting"]), (&json!("postgres"), &json!(2)));
    assert_eq!(stats["durability"], "fsync=on, synchronous_commit=on");
    assert_eq!(stats["store"], server.url());

    let renewed = place.one("store reset-cursors");
    assert_ne!(renewed["incarnation"], stats["log"]["incarnation"]);
    assert!(place.run(&format!("events --after {cursor}")).err.contains("cursor_expired"));
}

#[test]
fn any_program_is_a_worker() {
    let server = Server::start();
    let place = Place::at(server.url());
    place.ok("task create shout --id a --payload 41");
    place.ok("task create shout --id b --payload 42");
    let done = place.ok("worker exec --kind shout --exit-when-idle=100ms --json -- cat");
    assert_eq!(done.lines().count(), 2, "{done}");
    let shown = place.one("task show b");
    assert_eq!((&shown["state"], &shown["result"]["json"]), (&json!("completed"), &json!(42)));
}

#[test]
fn an_unreachable_server() {
    let place = Place::at("postgres://user:s3cret@localhost:1/none".to_owned());
    for line in ["task list", "stats", "migrate"] {
        let said = place.run(line);
        assert!(said.code == 1 && said.err.contains("[store_unavailable]"), "{line}: {said:?}");
        assert!(!said.err.contains("s3cret"), "{line}: {said:?}");
    }
}
