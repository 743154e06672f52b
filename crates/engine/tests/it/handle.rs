use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Claim, Complete, Fail};
use windlass_core::{FailureClass, Payload, PublicState, Retry, RetryPolicy, TaskKey, Tenant};
use windlass_engine::{Config, Engine, Error};
use windlass_store::MemoryStore;
use windlass_store_test::{Call, Failure, FaultStore};

use crate::stage::{Stage, claim, claim_now, complete, create, fence, key, until};

#[tokio::test]
async fn a_task_is_created_with_all_its_options() {
    let stage = Stage::new().await;
    let creation = stage
        .engine
        .create("email")
        .id("t")
        .tenant("acme")
        .lane("mail")
        .payload(&vec![1, 2])
        .priority(5)
        .after(Duration::from_secs(60))
        .retry(RetryPolicy::fixed(3, 1_000))
        .attempt_timeout(Duration::from_secs(5))
        .deadline(Duration::from_secs(600))
        .retention(Duration::from_secs(7))
        .label("customer", "7")
        .requires("smtp")
        .tag("eu");
    let handle = creation.await.unwrap();
    assert!(!handle.is_duplicate());
    assert_eq!(*handle.key(), TaskKey { tenant: "acme".into(), id: "t".into() });
    let task = handle.task().await.unwrap();
    assert_eq!((task.kind.as_str(), task.lane.as_str(), task.priority), ("email", "mail", 5));
    assert_eq!(task.lifecycle.public(), PublicState::Delayed);
    assert_eq!(task.policy.retry, Some(RetryPolicy::fixed(3, 1_000)));
    assert_eq!(task.policy.attempt_timeout_ms, Some(5_000));
    assert_eq!(task.policy.retention_ms, 7_000);
    assert_eq!(task.deadline, Some(task.created_at.plus_ms(600_000)));
    assert_eq!(task.labels["customer"], "7");
    assert_eq!(task.route.tag(), Some("eu"));
    let input = stage.engine.payload(&task.input_key().unwrap()).await.unwrap();
    assert_eq!(input, Some(Payload::json("[1,2]")));
}

#[tokio::test]
async fn a_repeated_create_returns_the_first_task() {
    let stage = Stage::new().await;
    let order = |n: u32| stage.engine.create("order").payload(&n).idempotency_key("order-17");
    let first = order(1).await.unwrap();
    let second = order(1).await.unwrap();
    assert!(!first.is_duplicate() && second.is_duplicate());
    assert_eq!(first.id(), second.id());
    assert_eq!(order(2).await.unwrap_err().code(), "conflict");
}

#[tokio::test]
async fn bad_input_creates_nothing() {
    let stage = Stage::new().await;
    let no_text = BTreeMap::from([((1, 2), 3)]);
    let rejected = stage.engine.create("k").payload(&no_text).await.unwrap_err();
    assert_eq!(rejected.code(), "payload_encoding");
    assert_eq!(stage.engine.create("").await.unwrap_err().code(), "invalid");
    let endless = stage.engine.create("k").after(Duration::MAX).await.unwrap_err();
    assert_eq!(endless.code(), "invalid");
    assert!(stage.engine.count_by_state(&Tenant::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_handle_waits_until_its_task_has_ended() {
    let stage = Stage::new().await;
    let handle = stage.engine.create("k").id("t").await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.result::<u32>().await }
    });
    // Changes of other tasks do not end the wait.
    stage.engine.create("k").id("other").lane("else").await.unwrap();
    claim_now(&stage.engine).await;
    let result = Some(Payload::json("7"));
    let complete = Complete { fence: fence(&stage.engine, "t", 1).await, result };
    stage.engine.submit(complete).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 7);
    assert_eq!(handle.result::<u32>().await.unwrap(), 7);
    assert_eq!(handle.result::<String>().await.unwrap_err().code(), "payload_encoding");
}

#[tokio::test]
async fn a_task_without_a_result_reports_its_end_state() {
    let stage = Stage::new().await;
    let failed = stage.engine.create("k").id("t").await.unwrap();
    claim_now(&stage.engine).await;
    let fence = fence(&stage.engine, "t", 1).await;
    let (class, retry) = (FailureClass::Permanent, Retry::Policy);
    stage.engine.submit(Fail { fence, class, reason: "no".into(), retry }).await.unwrap();
    let Error::NotCompleted { state, reason, .. } = failed.result::<()>().await.unwrap_err() else {
        panic!("the task has failed");
    };
    assert_eq!((state, reason.as_str()), (PublicState::Failed, "no"));
    let cancelled = stage.engine.create("k").id("c").await.unwrap();
    cancelled.cancel("stop").await.unwrap();
    let error = cancelled.result::<()>().await.unwrap_err();
    assert_eq!(error.to_string(), "task c has ended as cancelled: stop");
    let missing = stage.engine.handle(key("missing"));
    assert_eq!(missing.wait().await.unwrap_err().code(), "task_not_found");
    assert_eq!(missing.why().await.unwrap_err().code(), "task_not_found");
}

/// If reading other nodes' commits from the log fails, waiting callers read the task instead.
#[tokio::test]
async fn a_failing_log_read_does_not_block_waiting_callers() {
    for call in [Call::Describe, Call::Events] {
        let stage = Stage::new().await;
        let wrapped = FaultStore::new(Arc::new(stage.memory.another()));
        let faults = wrapped.clone();
        let other = stage.second(|_| Arc::new(wrapped)).await;
        stage.engine.submit(create("t")).await.unwrap();
        claim_now(&stage.engine).await;
        let handle = other.handle(key("t"));
        let waiting = tokio::spawn(async move { handle.wait().await });
        tokio::task::yield_now().await;
        faults.fail(call, 1, Failure::Unavailable);
        stage.engine.submit(create("u")).await.unwrap();
        until(|| faults.is_spent()).await;
        let complete = complete(&stage.engine, "t", 1).await;
        stage.engine.submit(complete).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(ended.unwrap().unwrap().unwrap().lifecycle.ended_at().is_some(), "{call:?}");
    }
}

/// One log reader serves any number of waits.
#[tokio::test]
async fn many_waits_share_one_log_reader() {
    const TASKS: usize = 200;
    let faults = FaultStore::new(Arc::new(MemoryStore::new()));
    let engine = Engine::with_store(faults.clone(), Config::default()).await.unwrap();
    let mut waits = Vec::new();
    for n in 0..TASKS {
        let handle = engine.create("k").id(n.to_string()).await.unwrap();
        waits.push(tokio::spawn(async move { handle.result::<()>().await }));
    }
    tokio::task::yield_now().await;
    let before = faults.calls(Call::Events);
    let claimed = engine.claim(Claim { limit: 1_000, ..claim() }, Duration::ZERO).await.unwrap();
    for claimed in &claimed {
        let complete = Complete { fence: claimed.task.fence(), result: None };
        engine.submit(complete).await.unwrap();
    }
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
    // At most one page per commit, plus one empty page each.
    assert!(faults.calls(Call::Events) - before <= 2 * (TASKS as u64 + 1));
    let handle = engine.create("k").await.unwrap();
    let waiting = tokio::spawn(async move { handle.wait().await });
    tokio::task::yield_now().await;
    engine.shutdown().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), "shutting_down");
}
