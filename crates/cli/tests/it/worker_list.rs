//! `worker list`, `task grant` and `task revoke`.

use std::time::Duration;

use windlass::TagFilter;
use windlass::command::ClaimGranted;

use crate::place::{Place, claim};

#[tokio::test(flavor = "multi_thread")]
async fn running_workers_are_listed() {
    let place = Place::empty();
    let engine = place.application().await;
    let none = "There is no worker: none is registered.\n";
    assert_eq!(place.ok("worker list"), none);
    assert!(place.json("worker list").is_empty());
    let worker = engine.worker("mailer-1").lanes(["mail", "bulk"]);
    let worker = worker.capabilities(["gpu"]).tags(TagFilter::Any);
    let running = worker.handler("k", async |_, (): ()| Ok(())).start().unwrap();
    let registered = async {
        while engine.workers(&"default".into(), None, 1).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), registered).await.unwrap();
    let row = place.one("worker list");
    assert_eq!((&row["worker"], &row["tags"]), (&"mailer-1".into(), &"any".into()));
    assert_eq!(row["lanes"], serde_json::json!(["bulk", "mail"]));
    assert_eq!((&row["heartbeat_interval_ms"], &row["suspect_since"]), (&5_000.into(), &().into()));
    assert!(row["seen_at"].is_string() && row["registered_at"].is_string(), "{row}");
    let text = place.ok("worker ls");
    for part in ["mailer-1", "bulk, mail", "gpu, tags: any", "just now"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(place.json("worker list --tenant other").is_empty());

    // Another process knows from the worker records that no worker is capable of this task.
    place.ok("task create k --id t --lane mail --requires fpga");
    let why = place.one("task why t");
    assert_eq!(
        (&why["why"], &why["facts"]["missing"]),
        (&"no_capable_worker".into(), &serde_json::json!(["fpga"]))
    );
    running.drain(Duration::from_secs(60)).await;
    assert_eq!(place.ok("worker list"), none);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_granted_and_revoked() {
    let place = Place::empty();
    let engine = place.application().await;
    place.ok("task create k --id t");
    let said = place.ok("task grant t mailer-1 --ttl 1h");
    assert!(said.starts_with("Task t is granted to mailer-1 until "), "{said}");
    let row = place.one("task grant t mailer-1");
    assert_eq!((&row["id"], &row["worker"]), (&"t".into(), &"mailer-1".into()));
    assert!(row["until"].is_string(), "{row}");
    assert!(place.ok("task why t").contains("is granted to worker mailer-1 until"));
    let refused = place.run("task grant t mailer-2");
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.ends_with("[granted_to_other]\n"), "{refused:?}");
    let said = place.ok("task revoke t");
    assert_eq!(said, "Task t is revoked from mailer-1, and waits in its lane.\n");
    place.ok("task create k --id granted --lane granted");
    place.ok("task grant granted mailer-3 --ttl 1h");
    place.ok("worker exec --kind k --lane granted --name mailer-3 --accept-grants --once -- true");
    assert_eq!(place.one("task show granted")["state"], "completed");

    let held = claim(&engine, "mailer-2", "default").await;
    let row = place.one("task revoke t --reason elsewhere");
    assert_eq!((&row["state"], &row["holder"]), (&"waiting".into(), &"mailer-2".into()));
    let events = place.ok("events --limit 1");
    assert!(events.contains("from mailer-2: elsewhere"), "{events}");
    place.ok("task grant t mailer-1");
    let consumed = engine.claim_granted(ClaimGranted::new("t", "mailer-1")).await.unwrap();
    assert!(consumed.task.epoch > held.epoch);
    engine.shutdown().await.unwrap();
}
