//! `quota list`, `show`, `set`, `clear`; `session list`, `release`; keys and sessions of tasks.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::SESSIONS;
use windlass::command::Claim;

use crate::test_store::{TestStore, claim, complete};

fn counts(limit: &Value) -> (u64, u64, u64) {
    let number = |name: &str| limit[name].as_u64().unwrap();
    (number("running"), number("admitted"), number("blocked"))
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_with_running_and_blocked_tasks() {
    let store = TestStore::empty();
    let engine = store.application().await;
    assert_eq!(store.ok("quota list"), "There is no limit: see windlass quota set --help.\n");
    for id in ["a", "b", "c", "d"] {
        store.ok(&format!("task create k --id {id} --concurrency-key customer-7"));
    }
    let first = claim(&engine, "w", "default").await;
    let shown = store.one("quota show --concurrency-key customer-7");
    assert_eq!(counts(&shown), (1, 0, 3));
    assert_eq!((&shown["limit"], &shown["configured"]), (&json!(1), &json!(false)));
    let table = store.ok("quota list");
    assert!(table.contains("customer-7") && table.contains("at most 1 at once"), "{table}");
    let why = store.ok("task why d");
    let blocked = "Task d is blocked by concurrency key customer-7";
    for part in [blocked, "at most 1 at once", "2 more wait there"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(store.json("task list --state blocked").len(), 3);

    let output = store.ok("quota set --concurrency-key customer-7 --limit 3");
    assert_eq!(output, "Concurrency key customer-7: at most 3 at once.\n");
    assert_eq!(counts(&store.one("quota show --concurrency-key customer-7")), (1, 2, 1));
    complete(&engine, &first).await;
    assert_eq!(counts(&store.one("quota show --concurrency-key customer-7")), (0, 3, 0));
    assert_eq!(
        store.ok("quota clear --concurrency-key customer-7"),
        "Concurrency key customer-7: one at a time.\n"
    );
    assert_eq!(counts(&store.one("quota show --concurrency-key customer-7")), (0, 1, 2));
    assert_eq!(store.json("quota list --kind concurrency").len(), 1);
    assert_eq!(store.json("quota list --kind lane").len(), 0);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_shows_when_it_admits_the_next_task() {
    let store = TestStore::empty();
    let engine = store.application().await;
    store.ok("task create k --id a");
    store.ok("task create k --id b");
    let output = store.ok("quota set --lane default --rate 1/1h");
    assert_eq!(output, "Lane default: at most 1 start per 1h.\n");
    claim(&engine, "w", "default").await;
    let shown = store.one("quota show --lane default");
    assert_eq!((&shown["started"], &shown["running"]), (&json!(1), &json!(1)));
    assert!(shown["retry_at"].is_string(), "{shown}");
    let why = store.one("task why b");
    assert_eq!((&why["why"], &why["facts"]["kind"]), (&json!("quota_exceeded"), &json!("lane")));
    assert!(why["facts"]["retry_at"].is_string(), "{why}");
    let why = store.ok("task why b");
    assert!(why.contains("the next may start in "), "{why}");
    let log = store.ok("events --limit 100");
    assert!(log.contains("lane default: at most 1 start per 1h"), "{log}");
    let output = store.one("quota set --all --limit 500 --rate 20/1s");
    let rate = json!({ "limit": 20, "window_ms": 1_000 });
    assert_eq!(output, json!({ "kind": "tenant", "name": "", "limit": 500, "rate": rate }));
    let output = store.ok("quota clear --all");
    assert_eq!(output, "The tenant: no limit.\n");
    assert_eq!(store.run("quota show --all").code, 4);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_and_released() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let none = "There is no session: the first task of a session creates it.\n";
    assert_eq!(store.ok("session list"), none);
    for id in ["a", "b"] {
        store.ok(&format!("task create k --id {id} --session chat-9"));
    }
    let mut owner = Claim { lease_ms: 3_600_000, ..Claim::new("w1") };
    owner.capabilities.names.insert(SESSIONS.to_owned());
    let claimed = engine.claim(owner, Duration::from_secs(60)).await.unwrap();
    let listed = store.one("session list");
    assert_eq!((&listed["name"], &listed["owner"]), (&json!("chat-9"), &json!("w1")));
    assert_eq!(counts(&listed), (1, 0, 1));
    let output = store.ok("session release chat-9");
    assert_eq!(output, "Session chat-9 is free once its running tasks have ended: 1 task.\n");
    complete(&engine, &claimed[0].task).await;
    let table = store.ok("session list");
    assert!(table.contains("no worker"), "{table}");
    assert_eq!(store.ok("session release chat-9"), "Session chat-9 is free.\n");
    assert_eq!(store.run("session release other").code, 4);
    engine.shutdown().await.unwrap();
}

#[test]
fn wrong_limits_are_named() {
    let store = TestStore::empty();
    store.ok("task create k");
    for (line, code, expected) in [
        ("quota set --limit 1", 2, "--concurrency-key <KEY>"),
        ("quota set --concurrency-key k", 2, "--limit <N>"),
        ("quota set --concurrency-key k --lane l --limit 1", 2, "cannot be used with"),
        ("quota set --concurrency-key k --limit -1", 2, "invalid value '-1' for '--limit <N>'"),
        ("quota set --concurrency-key k --rate 20", 2, "as in 20/1s"),
        ("quota set --concurrency-key k --rate 20/soon", 2, "a duration is"),
        ("quota set --concurrency-key k --limit 9999999", 2, "--limit is outside 0 to 1000000"),
        (
            "quota set --concurrency-key k --rate 1/1ms",
            2,
            "the window of --rate is outside 100ms to 31d",
        ),
        ("quota set --lane nowhere --limit 1", 4, "there is no lane nowhere"),
        ("task create k --concurrency-key a --session b", 2, "cannot be used with"),
        ("worker exec --kind k --sessions=1ms -- true", 2, "between 100ms and 1d"),
    ] {
        let output = store.run(line);
        assert_eq!(output.code, code, "{line}: {output:?}");
        assert!(output.err.contains(expected), "{line}: {}", output.err);
    }
}

/// Only a worker with --sessions claims tasks of sessions.
#[test]
fn a_worker_claims_sessions_if_enabled() {
    let store = TestStore::empty();
    store.ok("task create k --id a --session s");
    let idle = "--exit-when-idle=200ms -- true";
    store.ok(&format!("worker exec --kind k {idle}"));
    assert_eq!(store.one("task show a")["state"], "waiting");
    store.ok(&format!("worker exec --kind k --sessions=10s {idle}"));
    assert_eq!(store.one("task show a")["state"], "completed");
}
