//! Commands beside a running application affect its workers.

use std::time::Duration;

use tokio::sync::mpsc;
use windlass::{Context, Failure};

use crate::test_store::TestStore;

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_claims_created_tasks() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let double = async |_: Context, number: u64| Ok::<_, Failure>(number * 2);
    let worker = engine.worker("w").handler("double", double).start().unwrap();
    let id = store.ok("task create double --payload 21");
    let task = store.one(&format!("task wait {} --timeout 1m", id.trim()));
    assert_eq!(task["state"], "completed");
    assert_eq!(store.one(&format!("task show {}", id.trim()))["result"]["json"], 42);
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_skips_a_paused_lane() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let worker = engine
        .worker("w")
        .lanes(["held", "free"])
        .concurrency(4)
        .handler("k", async |_: Context, (): ()| Ok::<_, Failure>(()))
        .start()
        .unwrap();
    for id in ["held", "free"] {
        store.ok(&format!("task create k --id {id} --lane {id}"));
        store.ok(&format!("task wait {id}"));
    }
    store.ok("lane pause held");
    store.ok("task replay held");
    // The worker claims from both lanes at once: a later claim shows that it skipped one.
    store.ok("task replay free");
    store.ok("task wait free");
    assert_eq!(store.one("task show held")["state"], "waiting");
    assert_eq!(store.one("task why held")["why"], "lane_paused");

    store.ok("lane resume held");
    store.ok("task wait held");
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_handler_is_notified_of_a_cancellation() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let (events, mut received) = mpsc::unbounded_channel();
    let work = move |context: Context, (): ()| {
        let events = events.clone();
        async move {
            events.send("started").unwrap();
            context.cancelled().await;
            events.send("stopped").unwrap();
            Ok::<_, Failure>(())
        }
    };
    let worker = engine.worker("w").lease(Duration::from_secs(6)).handler("k", work).start();
    let worker = worker.unwrap();
    store.ok("task create k --id t");
    assert_eq!(received.recv().await, Some("started"));
    let out = store.ok("task cancel t --reason enough");
    assert!(out.contains("w was running it"), "{out}");
    assert_eq!(received.recv().await, Some("stopped"));
    let task = store.one("task show t");
    assert_eq!(
        (task["state"].as_str(), task["reason"].as_str()),
        (Some("cancelled"), Some("enough"))
    );
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}
