use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use windlass_core::command::{Cancel, Create, NewTask, Replay};
use windlass_core::{Change, ChildCounts, Payload, PublicState};
use windlass_worker::{Context, Failure, Worker};

use crate::stage::{EVER, Stage, key};

/// Counts how often a handler was called.
type CallCount = Arc<AtomicU32>;

/// A parent that sums up the results of its children.
fn summing(stage: &Stage, calls: &CallCount) -> Worker {
    let calls = calls.clone();
    let sum = move |context: Context, numbers: Vec<u32>| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move {
            for number in &numbers {
                context.spawn_child(&number.to_string(), "double").payload(number).await?;
            }
            let counts = context.wait_children().await?;
            let mut sum = 0;
            for number in &numbers {
                sum += context.child(&number.to_string()).result::<u32>().await?;
            }
            Ok((context.attempt(), counts.completed, sum))
        }
    };
    let double = async |_: Context, number: u32| Ok(2 * number);
    stage.worker().concurrency(4).handler("sum", sum).handler("double", double)
}

async fn create(stage: &Stage, numbers: &str) {
    let payload = Some(Payload::json(numbers));
    let new = NewTask { payload, ..NewTask::new("t", "sum") };
    stage.other.submit(Create::one(new)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn fan_out_and_gather() {
    let (stage, calls) = (Stage::new().await, CallCount::default());
    let running = summing(&stage, &calls).start().unwrap();
    create(&stage, "[1,2,3]").await;
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "[1,3,12]", "one attempt, three children");
    let counts = stage.other.child_counts(&key("t")).await.unwrap();
    assert_eq!(counts, ChildCounts { completed: 3, ..ChildCounts::default() });
    let children = stage.other.children(&key("t"), None, 10).await.unwrap();
    let ids: Vec<&str> = children.iter().map(|child| child.id.as_str()).collect();
    assert_eq!(ids, ["t/1", "t/2", "t/3"]);
    assert!(children.iter().all(|child| child.lifecycle.public() == PublicState::Completed));
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_holds_no_slot_while_it_waits() {
    let (stage, calls) = (Stage::new().await, CallCount::default());
    let running = summing(&stage, &calls).concurrency(1).start().unwrap();
    create(&stage, "[1,2,3]").await;
    stage.until("t", "completed").await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "once to spawn, once to gather");
    let expected = "created claimed waiting_children resumed claimed completed";
    assert_eq!(stage.history("t"), expected);
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn without_children_there_is_nothing_to_wait_for() {
    let (stage, calls) = (Stage::new().await, CallCount::default());
    let running = summing(&stage, &calls).start().unwrap();
    create(&stage, "[]").await;
    stage.until("t", "completed").await;
    assert_eq!(stage.history("t"), "created claimed completed");
    running.drain(EVER).await;
}

/// The last child ends after the handler has looked and before its task waits.
#[tokio::test(start_paused = true)]
async fn a_wait_for_children_that_have_ended_resumes_at_once() {
    let (stage, calls) = (Stage::new().await, CallCount::default());
    let (counted, other) = (calls.clone(), stage.other.clone());
    let handler = move |context: Context, (): ()| {
        let (first, other) = (counted.fetch_add(1, Ordering::Relaxed) == 0, other.clone());
        async move {
            if first {
                context.spawn_child("c", "missing").lane("elsewhere").await?;
                let waits = context.wait_children().await.unwrap_err();
                let task = context.child("c").key().clone();
                other.submit(Cancel { task, reason: String::new() }).await?;
                return Err(waits);
            }
            Ok(context.wait_children().await?.cancelled)
        }
    };
    let running = stage.worker().handler("k", handler).start().unwrap();
    stage.other.submit(Create::one(NewTask::new("t", "k"))).await.unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "1");
    assert_eq!(stage.history("t"), "created claimed completed", "it never left its lease");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_retried_handler_finds_its_children() {
    let stage = Stage::new().await;
    let handler = async |context: Context, (): ()| {
        let child = context.spawn_child("a/b~c%d", "leaf").payload(&1).await?;
        if context.attempt() == 1 {
            return Err(context.retry_after(std::time::Duration::from_secs(1), "once more"));
        }
        assert!(child.is_duplicate());
        let other = context.spawn_child("a/b~c%d", "leaf").payload(&2).await;
        assert_eq!(other.unwrap_err().code(), "conflict");
        context.wait_children().await?;
        Ok(context.attempt())
    };
    let leaf = async |_: Context, _: u32| Ok(());
    let running = stage.worker().handler("k", handler).handler("leaf", leaf).start().unwrap();
    let mut new = NewTask::new("t", "k");
    new.policy.retry = Some(windlass_core::RetryPolicy::fixed(2, 0));
    stage.other.submit(Create::one(new)).await.unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "2");
    assert!(stage.task("t/a%2Fb%7Ec%25d").await.lifecycle.ended_at().is_some());
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_replayed_parent_creates_its_children_anew() {
    let (stage, calls) = (Stage::new().await, CallCount::default());
    let running = summing(&stage, &calls).start().unwrap();
    create(&stage, "[1]").await;
    stage.until("t", "completed").await;
    stage.other.submit(Replay { task: key("t"), execution: 0 }).await.unwrap();
    let again = stage.other.handle(key("t"));
    let (attempt, completed, sum): (u32, u32, u32) = again.result().await.unwrap();
    assert_eq!((attempt, completed, sum), (1, 1, 2), "the children of this execution");
    stage.task("t/1").await;
    stage.task("t/1~1").await;
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn failed_children_are_counted() {
    let stage = Stage::new().await;
    let handler = async |context: Context, (): ()| {
        context.spawn_child("bad", "bad").await?;
        let counts = context.wait_children().await?;
        let bad = context.child("bad").result::<()>().await.unwrap_err();
        assert_eq!(bad.code(), "not_completed");
        Ok(counts.failed)
    };
    let bad = async |_: Context, (): ()| Err::<(), _>(Failure::permanent("no"));
    let running = stage.worker().handler("k", handler).handler("bad", bad).start().unwrap();
    stage.other.submit(Create::one(NewTask::new("t", "k"))).await.unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "1");
    let resumed = stage.events("t").into_iter().filter_map(|entry| entry.change());
    assert_eq!(resumed.filter(|change| matches!(change, Change::Resumed { .. })).count(), 1);
    running.drain(EVER).await;
}

/// The worker that runs the children is notified through their leases.
#[tokio::test(start_paused = true)]
async fn a_cancelled_parent_stops_its_children() {
    let stage = Stage::new().await;
    let handler = async |context: Context, (): ()| {
        context.spawn_child("slow", "slow").await?;
        context.wait_children().await?;
        Ok(())
    };
    let slow = async |context: Context, (): ()| {
        context.cancelled().await;
        Ok(())
    };
    let running = stage.worker().handler("k", handler).handler("slow", slow).start().unwrap();
    stage.other.submit(Create::one(NewTask::new("t", "k"))).await.unwrap();
    stage.until("t/slow", "claimed").await;
    stage.other.handle(key("t")).cancel("enough").await.unwrap();
    stage.until("t/slow", "cancelled").await;
    running.drain(EVER).await;
    assert_eq!(stage.task("t").await.lifecycle.public(), PublicState::Cancelled);
}
