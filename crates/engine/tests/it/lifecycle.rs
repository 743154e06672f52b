use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::command::{
    Cancel, Claim, Complete, Create, Delay, Fail, NewTask, Release, Replay,
};
use windlass_core::{
    Command, FailureClass, Fence, LaneName, Outcome, Payload, PublicState, Rejection, Retry,
    Settled, TaskId, Tenant, Why, WorkerCapabilities,
};
use windlass_engine::{Error, TaskFilter, TaskInput};
use windlass_store::Clock;

use crate::stage::{Stage, claim, claim_now, complete, create, created, fence, ids, key};

#[tokio::test]
async fn a_task_from_its_creation_to_its_result() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    let payload = Payload::json("{\"n\":1}");
    let new = NewTask { payload: Some(payload.clone()), ..NewTask::new("t", "k") };
    assert!(created(engine.submit(Create::one(new)).await.unwrap()));
    let claimed = claim_now(engine).await;
    assert_eq!(claimed[0].input, TaskInput::Inline(payload));
    let result = Some(Payload::json("2"));
    let done = Complete { fence: fence(engine, "t", 1).await, result: result.clone() };
    let settled = engine.submit(done).await.unwrap();
    assert_eq!(settled, Outcome::Settled(Settled::Completed));
    assert_eq!(engine.result(&key("t")).await.unwrap(), result);
    let task = engine.task(&key("t")).await.unwrap().unwrap();
    assert_eq!(task.lifecycle.public(), PublicState::Completed);
}

#[tokio::test]
async fn rejections_are_returned_with_their_codes() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    let rejected = engine.submit(complete(engine, "t", 1).await).await.unwrap_err();
    assert_eq!(rejected.code(), "task_not_found");
    engine.submit(create("t")).await.unwrap();
    claim_now(engine).await;
    let stale = engine.submit(complete(engine, "t", 7).await).await.unwrap_err();
    assert!(matches!(stale, Error::Rejected(Rejection::StaleFence { .. })));
    engine.submit(Cancel { task: key("t"), reason: "no".into() }).await.unwrap();
    let late = engine.submit(complete(engine, "t", 1).await).await.unwrap_err();
    assert_eq!(late.code(), "already_terminal");
}

#[tokio::test]
async fn a_job_keeps_its_command_order_and_returns_each_result() {
    let stage = Stage::new().await;
    // Epochs start at the creation time, which is the time of the first commit.
    let first = stage.clock.now().micros() as u64;
    let fence = |nth| Fence { task: key("t"), epoch: first + nth };
    let complete = |nth| Complete { fence: fence(nth), result: None };
    let commands: Vec<Command> = vec![
        create("t").into(),
        claim().into(),
        complete(1).into(),
        complete(2).into(),
        Replay { task: key("t"), execution: 0 }.into(),
        claim().into(),
        Release { fence: fence(2) }.into(),
    ];
    let results = stage.engine.submit_many(commands).await.unwrap();
    let codes: Vec<_> = results.iter().map(|a| a.as_ref().err().map(Error::code)).collect();
    assert_eq!(codes, [None, None, None, Some("stale_fence"), None, None, None]);
    let task = stage.engine.task(&key("t")).await.unwrap().unwrap();
    assert_eq!((task.claims, task.execution, task.attempts), (2, 1, 0));
    assert!(stage.engine.submit_many(vec![]).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_sweep_promotes_due_tasks() {
    let stage = Stage::new().await;
    let new = NewTask { delay: Delay::For { ms: 1_500 }, ..NewTask::new("t", "k") };
    stage.engine.submit(Create::one(new)).await.unwrap();
    assert!(claim_now(&stage.engine).await.is_empty());
    stage.clock.advance_ms(1_500);
    let (swept, _) = stage.engine.sweep().await.unwrap();
    assert_eq!(swept, 1);
    assert_eq!(ids(&claim_now(&stage.engine).await), ["t"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_task_becomes_ready_in_the_background() {
    let config = windlass_engine::Config::default();
    let store = windlass_store::MemoryStore::new();
    let engine = windlass_engine::Engine::with_store(store, config).await.unwrap();
    let new = NewTask { delay: Delay::For { ms: 30 }, ..NewTask::new("t", "k") };
    engine.submit(Create::one(new)).await.unwrap();
    let claimed = engine.claim(claim(), Duration::from_secs(3_600)).await.unwrap();
    assert_eq!(ids(&claimed), ["t"]);
}

#[tokio::test]
async fn a_waiting_task_says_why() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    let capabilities = ["gpu".to_owned()].into();
    let new = NewTask { capabilities, ..NewTask::new("t", "k") };
    engine.submit(Create::one(new)).await.unwrap();
    let unknown = Some(Why::Ready { capabilities: vec!["gpu".into()], tag: None });
    assert_eq!(engine.why(&key("t")).await.unwrap(), unknown);
    let elsewhere = Claim { lanes: vec!["elsewhere".into()], ..claim() };
    assert!(engine.claim(elsewhere, Duration::ZERO).await.unwrap().is_empty());
    let no_worker = Some(Why::NoWorker { lane: LaneName::default() });
    assert_eq!(engine.why(&key("t")).await.unwrap(), no_worker);
    assert!(claim_now(engine).await.is_empty());
    let unable = Some(Why::NoCapableWorker { missing: vec!["gpu".into()], tag: None });
    assert_eq!(engine.why(&key("t")).await.unwrap(), unable);
    let capabilities =
        WorkerCapabilities { names: ["gpu".to_owned()].into(), ..WorkerCapabilities::default() };
    let able = Claim { capabilities, ..claim() };
    engine.claim(able, Duration::ZERO).await.unwrap();
    let why = engine.why(&key("t")).await.unwrap();
    assert!(matches!(why, Some(Why::Leased { attempt: Some(1), .. })), "{why:?}");
    assert_eq!(engine.why(&key("none")).await.unwrap(), None);
}

#[tokio::test]
async fn a_failed_task_is_retried_after_its_backoff() {
    let stage = Stage::new().await;
    let mut new = NewTask::new("t", "k");
    new.policy.retry = Some(windlass_core::RetryPolicy::fixed(2, 60_000));
    stage.engine.submit(Create::one(new)).await.unwrap();
    claim_now(&stage.engine).await;
    let fail = Fail {
        fence: fence(&stage.engine, "t", 1).await,
        class: FailureClass::Transient,
        reason: "busy".into(),
        retry: Retry::Policy,
    };
    stage.engine.submit(fail).await.unwrap();
    let why = stage.engine.why(&key("t")).await.unwrap().unwrap();
    assert!(matches!(why, Why::Delayed { after: Some(FailureClass::Transient), .. }));
    // Every commit advances time by at least one microsecond, even with a stopped clock.
    stage.clock.advance_ms(60_001);
    stage.engine.sweep().await.unwrap();
    assert_eq!(claim_now(&stage.engine).await[0].task.attempts, 2);
}

#[tokio::test]
async fn shutdown_replies_to_all_callers() {
    let stage = Stage::new().await;
    let engine = stage.engine.clone();
    let waiting = tokio::spawn(async move { engine.claim(claim(), Duration::from_secs(60)).await });
    crate::stage::until(|| stage.engine.stats().batches == 1).await;
    let last = {
        let engine = stage.engine.clone();
        tokio::spawn(async move { engine.submit(create("late")).await })
    };
    tokio::task::yield_now().await;
    stage.engine.shutdown().await.unwrap();
    assert!(created(last.await.unwrap().unwrap()), "queued commands are decided");
    assert_eq!(ids(&waiting.await.unwrap().unwrap_or_default()), ["late"]);
    let rejected = stage.engine.submit(create("later")).await.unwrap_err();
    assert_eq!(rejected.code(), "shutting_down");
    assert_eq!(stage.engine.sweep().await.unwrap_err().code(), "shutting_down");
    assert_eq!(stage.engine.trim_log().await.unwrap_err().code(), "shutting_down");
    stage.engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_second_shutdown_waits_for_the_first() {
    let config = windlass_engine::Config { batch_commands: 1, ..crate::stage::quiet() };
    let folder = tempfile::tempdir().unwrap();
    let store = windlass_store_sqlite::SqliteStore::open(folder.path().join("a.db")).unwrap();
    let engine = windlass_engine::Engine::with_store(store, config).await.unwrap();
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.submit(create(&n.to_string())).await })
        })
        .collect();
    crate::stage::until(|| engine.stats().commands > 0).await;
    let impatient = tokio::time::timeout(Duration::from_millis(1), engine.shutdown()).await;
    assert!(impatient.is_err(), "shutdown takes longer than the timeout");
    let (one, other) = tokio::join!(engine.shutdown(), engine.shutdown());
    one.unwrap();
    other.unwrap();
    for call in calls {
        assert!(created(call.await.unwrap().unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn due_times_hold_after_the_clock_was_ahead_once() {
    use windlass_store::MemoryStore;
    let clock = std::sync::Arc::new(Swayed::default());
    let store = MemoryStore::with_clock(clock.clone());
    let config = windlass_engine::Config { clock: clock.clone(), ..Default::default() };
    let engine = windlass_engine::Engine::with_store(store, config).await.unwrap();
    clock.ahead_ms.store(3_600_000, std::sync::atomic::Ordering::SeqCst);
    engine.submit(create("ahead")).await.unwrap();
    clock.ahead_ms.store(0, std::sync::atomic::Ordering::SeqCst);
    let new = NewTask { lane: "l".into(), ..NewTask::new("t", "k") };
    let new = NewTask { delay: Delay::For { ms: 200 }, ..new };
    engine.submit(Create::one(new)).await.unwrap();
    let claim = windlass_core::command::Claim { lanes: vec!["l".into()], ..claim() };
    let claimed = engine.claim(claim, Duration::from_secs(60)).await.unwrap();
    assert_eq!(ids(&claimed), ["t"]);
}

/// A clock on tokio's virtual time that can be set ahead.
#[derive(Debug)]
struct Swayed {
    start: tokio::time::Instant,
    ahead_ms: std::sync::atomic::AtomicU64,
}

impl Default for Swayed {
    fn default() -> Self {
        Self { start: tokio::time::Instant::now(), ahead_ms: Default::default() }
    }
}

impl Clock for Swayed {
    fn now(&self) -> windlass_core::Timestamp {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap();
        let ahead_ms = self.ahead_ms.load(std::sync::atomic::Ordering::SeqCst);
        windlass_core::Timestamp::from_millis(1_000_000).plus_ms(ms + ahead_ms)
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }
}

#[tokio::test]
async fn lists_and_counts_match_the_tasks() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    for id in ["a", "b", "c", "d"] {
        let lane = if id == "d" { "other" } else { "l" };
        let kind = if id == "b" { "sms" } else { "email" };
        let task = NewTask { lane: lane.into(), ..NewTask::new(id, kind) };
        engine.submit(Create::one(task)).await.unwrap();
    }
    engine.submit(Cancel { task: key("c"), reason: "no".into() }).await.unwrap();
    let any = TaskFilter::default();
    let state = |state| TaskFilter { state: Some(state), ..TaskFilter::default() };
    let waiting = state(PublicState::Waiting);
    let tenant = Tenant::default();
    for (filter, after, limit, expected) in [
        (any.clone(), None, 9, "a b c d"),
        (any.clone(), Some("b"), 1, "c"),
        (any.clone(), None, 0, ""),
        (waiting.clone(), None, 9, "a b d"),
        (waiting.clone(), Some("a"), 1, "b"),
        (state(PublicState::Cancelled), None, 9, "c"),
        (state(PublicState::Failed), None, 9, ""),
        (TaskFilter { lane: Some("other".into()), ..any.clone() }, None, 9, "d"),
        (TaskFilter { kind: Some("email".into()), ..waiting }, None, 9, "a d"),
    ] {
        let after = after.map(TaskId::from);
        let found = engine.tasks(&tenant, &filter, after.as_ref(), limit).await.unwrap();
        let found: Vec<&str> = found.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(found.join(" "), expected, "{filter:?} {after:?} {limit}");
    }
    let states = engine.count_by_state(&tenant).await.unwrap();
    assert_eq!(states, BTreeMap::from([("cancelled".into(), 1), ("waiting".into(), 3)]));
    let ready = engine.count_ready(&tenant).await.unwrap();
    assert_eq!(ready, BTreeMap::from([("l".into(), 2), ("other".into(), 1)]));
    assert!(engine.count_by_state(&"missing".into()).await.unwrap().is_empty());
}
