//! Commands beside a running application affect its workers.

use std::time::Duration;

use tokio::sync::mpsc;
use windlass::{Context, Failure};

use crate::place::Place;

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_claims_created_tasks() {
    let place = Place::empty();
    let engine = place.application().await;
    let double = async |_: Context, number: u64| Ok::<_, Failure>(number * 2);
    let worker = engine.worker("w").handler("double", double).start().unwrap();
    let id = place.ok("task create double --payload 21");
    let task = place.one(&format!("task wait {} --timeout 1m", id.trim()));
    assert_eq!(task["state"], "completed");
    assert_eq!(place.one(&format!("task show {}", id.trim()))["result"]["json"], 42);
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_skips_a_paused_lane() {
    let place = Place::empty();
    let engine = place.application().await;
    let worker = engine
        .worker("w")
        .lanes(["held", "free"])
        .concurrency(4)
        .handler("k", async |_: Context, (): ()| Ok::<_, Failure>(()))
        .start()
        .unwrap();
    for id in ["held", "free"] {
        place.ok(&format!("task create k --id {id} --lane {id}"));
        place.ok(&format!("task wait {id}"));
    }
    place.ok("lane pause held");
    place.ok("task replay held");
    // The worker claims from both lanes at once: a later claim shows that it skipped one.
    place.ok("task replay free");
    place.ok("task wait free");
    assert_eq!(place.one("task show held")["state"], "waiting");
    assert_eq!(place.one("task why held")["why"], "lane_paused");

    place.ok("lane resume held");
    place.ok("task wait held");
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_handler_is_notified_of_a_cancellation() {
    let place = Place::empty();
    let engine = place.application().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let work = move |context: Context, (): ()| {
        let tell = tell.clone();
        async move {
            tell.send("started").unwrap();
            context.cancelled().await;
            tell.send("stopped").unwrap();
            Ok::<_, Failure>(())
        }
    };
    let worker = engine.worker("w").lease(Duration::from_secs(6)).handler("k", work).start();
    let worker = worker.unwrap();
    place.ok("task create k --id t");
    assert_eq!(told.recv().await, Some("started"));
    let out = place.ok("task cancel t --reason enough");
    assert!(out.contains("w was running it"), "{out}");
    assert_eq!(told.recv().await, Some("stopped"));
    let task = place.one("task show t");
    assert_eq!(
        (task["state"].as_str(), task["reason"].as_str()),
        (Some("cancelled"), Some("enough"))
    );
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}
