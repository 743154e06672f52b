//! `task why` in every state.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::command::{Claim, Snooze};
use windlass::{Config, Engine, FailureClass, StoreUrl};

use crate::test_store::{TestStore, claim, complete, fail};

/// Checks that `task why` prints all these parts, and has this code.
fn check(store: &TestStore, id: &str, why: &str, parts: &[&str]) -> Value {
    let text = store.ok(&format!("task why {id}"));
    assert!(text.lines().count() <= 2, "{text}");
    for part in parts {
        assert!(text.contains(part), "{id}: {part}: {text}");
    }
    let json = store.one(&format!("task why {id}"));
    assert_eq!(json["why"], why, "{json}");
    json
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting() {
    let store = TestStore::empty();
    let engine = store.application().await;
    engine.create("k").id("t").lane("mail").await.unwrap();
    let no_worker = ["is ready", "only one", "no recent claim from", "Start a worker on lane mail"];
    let json = check(&store, "t", "ready", &no_worker);
    assert_eq!((&json["last_claim"], &json["state"]), (&Value::Null, &json!("waiting")));

    engine.create("k").id("u").lane("mail").priority(9).await.unwrap();
    let task = claim(&engine, "worker-1", "mail").await;
    let busy = ["last claim from this lane was ", "by worker-1", "busy or dead"];
    let json = check(&store, "t", "ready", &busy);
    assert_eq!(json["last_claim"]["worker"], "worker-1");

    engine.create("k").id("v").lane("mail").requires("gpu").tag("eu").await.unwrap();
    let demands = ["Another task is ready there", "that offers gpu and takes tag eu can take it"];
    let json = check(&store, "v", "ready", &demands);
    assert_eq!(json["facts"], json!({ "capabilities": ["gpu"], "tag": "eu" }));

    store.ok("lane pause mail");
    let json = check(
        &store,
        "t",
        "lane_paused",
        &["lane mail is paused (set", "windlass lane resume mail"],
    );
    assert_eq!(json["facts"], json!({ "lane": "mail", "state": "paused" }));
    store.ok("lane resume mail");

    complete(&engine, &task).await;
    store.ok("lane limit mail 1");
    claim(&engine, "worker-2", "mail").await;
    engine.create("k").id("w").lane("mail").await.unwrap();
    let full = ["lane mail runs 1 of the 1 tasks", "once: worker-2.", "windlass lane limit mail N"];
    check(&store, "w", "lane_full", &full);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed() {
    let store = TestStore::empty();
    let engine = store.application().await;
    store.ok("task create k --id later --lane a --delay 1d");
    let json = check(&store, "later", "delayed", &["starts in 23h", "created to start later"]);
    assert!(json["facts"]["until"].as_str().unwrap().ends_with('Z'));

    store.ok("task create k --id retry --lane b --attempts 3 --backoff 1d");
    let task = claim(&engine, "w", "b").await;
    fail(&engine, &task, FailureClass::Transient, "the other side\nis away").await;
    let parts = ["starts in 23h", "attempt 1 of 3 failed (transient: the other side is away)"];
    check(&store, "retry", "delayed", &parts);

    store.ok("task create odd --id odd --lane c");
    let task = claim(&engine, "w", "c").await;
    engine.submit(Snooze { fence: task.fence(), delay_ms: 3_600_000 }).await.unwrap();
    let parts = ["a worker snoozed it", "does one exist for odd on lane c?"];
    check(&store, "odd", "delayed", &parts);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn held_and_ended() {
    let store = TestStore::empty();
    let engine = store.application().await;
    store.ok("task create k --id t --attempts 1");
    let task = claim(&engine, "worker-1", "default").await;
    let parts = ["worker-1 runs task t: attempt 1 of 1 began", "Its lease expires in"];
    let json = check(&store, "t", "leased", &parts);
    assert_eq!(
        (&json["facts"]["worker"], &json["facts"]["attempt"]),
        (&json!("worker-1"), &json!(1))
    );

    fail(&engine, &task, FailureClass::Transient, "no route to host").await;
    let parts = [
        "Task t failed",
        "in attempt 1 of 1.",
        "attempts are used up (transient): no route to host",
        "windlass dlq replay t",
    ];
    check(&store, "t", "terminal", &parts);

    for (class, says) in [
        (FailureClass::Transient, "no retry policy, so the failure was final (transient): boom"),
        (FailureClass::Permanent, "a permanent failure (permanent): boom"),
        (FailureClass::Timeout, "took too long (timeout): boom"),
        (FailureClass::Cancelled, "stopped it (cancelled): boom"),
    ] {
        store.ok(&format!("task create k --id {}", class.as_str()));
        let task = claim(&engine, "w", "default").await;
        fail(&engine, &task, class, "boom").await;
        check(&store, class.as_str(), "terminal", &[says]);
    }

    store.ok("task create k --id done");
    let task = claim(&engine, "w", "default").await;
    complete(&engine, &task).await;
    check(&store, "done", "terminal", &["was completed", "windlass task show done"]);
    store.ok("task create k --id gone");
    store.ok("task cancel gone --reason enough");
    let parts = ["was cancelled", ": enough", "windlass task replay gone"];
    check(&store, "gone", "terminal", &parts);
    engine.shutdown().await.unwrap();
}

/// Background work needs an engine, and the explanation says that none has done it.
#[tokio::test(flavor = "multi_thread")]
async fn overdue_tasks_are_explained_while_no_engine_runs() {
    let store = TestStore::empty();
    let url: StoreUrl = store.url().parse().unwrap();
    let config = Config { background: false, ..Config::default() };
    let engine = Engine::open_with(&url, config).await.unwrap();
    store.ok("task create k --id late --lane a --deadline 1ms");
    store.ok("task create k --id due --lane b --delay 1ms");
    store.ok("task create k --id held --lane c");
    let claim = Claim { lanes: vec!["c".into()], lease_ms: 100, ..Claim::new("worker-1") };
    let claimed = engine.claim(claim, Duration::ZERO).await.unwrap();
    // A rejected write shows that the clock of the store has passed the lease expiry.
    let fence = claimed[0].task.fence();
    loop {
        let report = windlass::command::ReportProgress {
            fence: fence.clone(),
            percent: 1,
            message: String::new(),
        };
        if engine.submit(report).await.is_err() {
            break;
        }
    }
    let running = "is your application running?";
    check(&store, "late", "ready", &["past its deadline", running]);
    check(&store, "due", "delayed", &["was due", running]);
    check(&store, "held", "leased", &["was held by worker-1, whose lease expired", running]);

    engine.sweep().await.unwrap();
    check(&store, "late", "terminal", &["expired", ": its deadline of 1ms had passed"]);
    check(&store, "due", "ready", &["is ready"]);
    check(&store, "held", "ready", &["by worker-1"]);
    engine.shutdown().await.unwrap();
}
