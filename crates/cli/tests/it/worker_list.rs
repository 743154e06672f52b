//! `worker list`, `task grant` and `task revoke`.

use std::time::Duration;

use windlass::TagFilter;
use windlass::command::ClaimGranted;

use crate::test_store::{TestStore, claim};

#[tokio::test(flavor = "multi_thread")]
async fn running_workers_are_listed() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let none = "There is no worker: none is registered.\n";
    assert_eq!(store.ok("worker list"), none);
    assert!(store.json("worker list").is_empty());
    let worker = engine.worker("mailer-1").lanes(["mail", "bulk"]);
    let worker = worker.capabilities(["gpu"]).tags(TagFilter::Any);
    let running = worker.handler("k", async |_, (): ()| Ok(())).start().unwrap();
    let registered = async {
        while engine.workers(&"default".into(), None, 1).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), registered).await.unwrap();
    let row = store.one("worker list");
    assert_eq!((&row["worker"], &row["tags"]), (&"mailer-1".into(), &"any".into()));
    assert_eq!(row["lanes"], serde_json::json!(["bulk", "mail"]));
    assert_eq!((&row["heartbeat_interval_ms"], &row["suspect_at"]), (&5_000.into(), &().into()));
    assert!(row["seen_at"].is_string() && row["registered_at"].is_string(), "{row}");
    let text = store.ok("worker ls");
    for part in ["mailer-1", "bulk, mail", "gpu, tags: any", "just now"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(store.json("worker list --tenant other").is_empty());

    // Another process knows from the worker records that no worker is capable of this task.
    store.ok("task create k --id t --lane mail --requires fpga");
    let why = store.one("task why t");
    assert_eq!(
        (&why["why"], &why["facts"]["missing"]),
        (&"no_capable_worker".into(), &serde_json::json!(["fpga"]))
    );
    running.drain(Duration::from_secs(60)).await;
    assert_eq!(store.ok("worker list"), none);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_granted_and_revoked() {
    let store = TestStore::empty();
    let engine = store.application().await;
    store.ok("task create k --id t");
    let output = store.ok("task grant t mailer-1 --ttl 1h");
    assert!(output.starts_with("Task t is granted to mailer-1 until "), "{output}");
    let row = store.one("task grant t mailer-1");
    assert_eq!((&row["id"], &row["worker"]), (&"t".into(), &"mailer-1".into()));
    assert!(row["until"].is_string(), "{row}");
    assert!(store.ok("task why t").contains("is granted to worker mailer-1 until"));
    let rejected = store.run("task grant t mailer-2");
    assert_eq!(rejected.code, 3, "{rejected:?}");
    assert!(rejected.err.ends_with("[granted_to_other]\n"), "{rejected:?}");
    let output = store.ok("task revoke t");
    assert_eq!(output, "Task t is revoked from mailer-1, and waits in its lane.\n");
    store.ok("task create k --id granted --lane granted");
    store.ok("task grant granted mailer-3 --ttl 1h");
    store.ok("worker exec --kind k --lane granted --name mailer-3 --accept-grants --once -- true");
    assert_eq!(store.one("task show granted")["state"], "completed");

    let held = claim(&engine, "mailer-2", "default").await;
    let row = store.one("task revoke t --reason elsewhere");
    assert_eq!((&row["state"], &row["holder"]), (&"waiting".into(), &"mailer-2".into()));
    let events = store.ok("events --limit 1");
    assert!(events.contains("from mailer-2: elsewhere"), "{events}");
    store.ok("task grant t mailer-1");
    let consumed = engine.claim_granted(ClaimGranted::new("t", "mailer-1")).await.unwrap();
    assert!(consumed.task.epoch > held.epoch);
    engine.shutdown().await.unwrap();
}
