use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::command::{Claim, Create, LimitLane, NewTask, SetLaneState};
use windlass_core::{Command, LaneName, LaneState, Payload, Tenant};
use windlass_engine::{Config, Engine, TaskFilter, TaskInput};
use windlass_store::Store;
use windlass_store_test::FaultStore;

use crate::stage::{Stage, claim, claim_now, complete, create, ids, key, quiet, until};

const SLOW_CONFLICT: Duration = Duration::from_secs(3_600);

/// A waiting claim that has been decided once and found nothing.
async fn waiting(
    stage: &Stage,
    claim: Claim,
) -> tokio::task::JoinHandle<Vec<windlass_engine::ClaimedTask>> {
    let batches = stage.engine.stats().batches;
    let engine = stage.engine.clone();
    let handle = tokio::spawn(async move { engine.claim(claim, SLOW_CONFLICT).await.unwrap() });
    until(|| stage.engine.stats().batches > batches).await;
    handle
}

#[tokio::test]
async fn a_task_is_created_and_leased_in_one_commit() {
    let stage = Stage::new().await;
    let claimer = waiting(&stage, claim()).await;
    stage.engine.submit(create("t")).await.unwrap();
    assert_eq!(ids(&claimer.await.unwrap()), ["t"]);
    assert_eq!(stage.engine.describe().await.unwrap().commits, 1);
}

#[tokio::test]
async fn one_task_wakes_one_claim_that_can_serve_it() {
    let stage = Stage::new().await;
    let gpu = ["gpu".to_owned()];
    let capabilities =
        windlass_core::WorkerCapabilities { names: gpu.clone().into(), ..Default::default() };
    let plain = waiting(&stage, claim()).await;
    let able = waiting(&stage, Claim { capabilities, ..claim() }).await;
    let elsewhere = waiting(&stage, Claim { lanes: vec!["other".into()], ..claim() }).await;
    let new = NewTask { capabilities: gpu.into(), ..NewTask::new("t", "k") };
    stage.engine.submit(Create::one(new)).await.unwrap();
    assert_eq!(ids(&able.await.unwrap()), ["t"]);
    assert!(!plain.is_finished() && !elsewhere.is_finished());
    stage.engine.submit(create("u")).await.unwrap();
    assert_eq!(ids(&plain.await.unwrap()), ["u"]);
    elsewhere.abort();
}

#[tokio::test]
async fn opening_a_lane_wakes_its_waiting_claims() {
    let stage = Stage::new().await;
    let (tenant, lane) = (Tenant::default(), LaneName::default());
    stage.engine.submit(create("a")).await.unwrap();
    let state = |state| SetLaneState { tenant: tenant.clone(), lane: lane.clone(), state };
    stage.engine.submit(state(LaneState::Paused)).await.unwrap();
    let claimer = waiting(&stage, claim()).await;
    stage.engine.submit(state(LaneState::Active)).await.unwrap();
    assert_eq!(ids(&claimer.await.unwrap()), ["a"]);

    let limit = LimitLane { tenant: tenant.clone(), lane: lane.clone(), limit: Some(1) };
    stage.engine.submit(limit).await.unwrap();
    stage.engine.submit(create("b")).await.unwrap();
    stage.engine.submit(create("c")).await.unwrap();
    assert_eq!(ids(&claim_now(&stage.engine).await), ["b"]);
    let claimer = waiting(&stage, claim()).await;
    stage.engine.submit(complete(&stage.engine, "b", 1).await).await.unwrap();
    assert_eq!(ids(&claimer.await.unwrap()), ["c"]);
}

#[tokio::test]
async fn another_engine_on_the_store_wakes_this_one() {
    let stage = Stage::new().await;
    let other = stage.second(|store| store).await;
    let claimer = waiting(&stage, claim()).await;
    other.submit(create("t")).await.unwrap();
    assert_eq!(ids(&claimer.await.unwrap()), ["t"]);
}

#[tokio::test]
async fn a_caller_that_left_holds_no_lease() {
    let stage = Stage::new().await;
    let claimer = waiting(&stage, claim()).await;
    claimer.abort();
    let _ = claimer.await;
    stage.engine.submit(create("t")).await.unwrap();
    assert_eq!(stage.engine.task(&key("t")).await.unwrap().unwrap().claims, 0);

    // The caller leaves between decision and reply: the lease is released.
    let engine = stage.engine.clone();
    let mut claiming = Box::pin(engine.claim(claim(), Duration::ZERO));
    let pushed =
        std::future::poll_fn(|cx| std::task::Poll::Ready(claiming.as_mut().poll(cx).is_pending()));
    assert!(pushed.await);
    let batches = engine.stats().batches;
    let gone = stage.engine.clone();
    let job =
        tokio::spawn(
            async move { gone.submit_many(vec![Command::from(claim())]).await.map(|_| ()) },
        );
    drop(claiming);
    until(|| engine.stats().batches > batches).await;
    job.await.unwrap().unwrap();
    let task = engine.task(&key("t")).await.unwrap().unwrap();
    assert_eq!((task.claims, task.attempts), (1, 1), "only the caller that stayed holds the lease");
}

#[tokio::test]
async fn an_undelivered_lease_is_released_without_counting_the_attempt() {
    let stage = Stage::new().await;
    stage.engine.submit(create("t")).await.unwrap();
    let engine = stage.engine.clone();
    let mut job = Box::pin(engine.submit_many(vec![Command::from(claim())]));
    let poll = |cx: &mut std::task::Context<'_>| job.as_mut().poll(cx).is_pending();
    let mut poll = poll;
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(poll(cx))).await);
    drop(job);
    until(|| engine.stats().batches >= 3).await;
    let task = engine.task(&key("t")).await.unwrap().unwrap();
    assert_eq!((task.claims, task.attempts), (1, 0));
    assert_eq!(claim_now(&engine).await[0].task.claims, 2);
}

#[tokio::test(start_paused = true)]
async fn a_claim_times_out_with_an_empty_result() {
    let stage = Stage::new().await;
    let nothing = stage.engine.claim(claim(), Duration::from_secs(5)).await.unwrap();
    assert!(nothing.is_empty());
}

/// A lease counts from the start of its batch, with and without a payload: a worker must not think
/// that it holds a lease for longer than the store does.
#[tokio::test(start_paused = true)]
async fn a_lease_starts_with_its_batch() {
    let stage = Stage::new().await;
    let store = Arc::new(FaultStore::new(Arc::new(stage.memory.another())));
    let engine = Engine::with_shared_store(store.clone(), quiet()).await.unwrap();
    for payload in [None, Some(Payload::json("1"))] {
        let id = if payload.is_some() { "with" } else { "without" };
        let new = NewTask { payload, ..NewTask::new(id, "k") };
        stage.engine.submit(Create::one(new)).await.unwrap();
        let mut held = store.pause_commit(1);
        let claiming = tokio::spawn({
            let engine = engine.clone();
            async move { engine.claim(claim(), Duration::ZERO).await.unwrap() }
        });
        held.reached().await;
        let decided = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        held.release();
        let claimed = claiming.await.unwrap();
        assert_eq!(ids(&claimed), [id]);
        assert!(claimed[0].leased_from <= decided, "{id} a payload");
    }
}

#[tokio::test]
async fn payloads_beyond_the_cap_are_fetched_one_by_one() {
    let stage = Stage::with(Config { claim_bytes: 10, ..quiet() }).await;
    let payload = |n: u8| Payload::new("a/b", vec![n; 8]);
    for n in 0..3 {
        let new = NewTask { payload: Some(payload(n)), ..NewTask::new(format!("t{n}"), "k") };
        stage.engine.submit(Create::one(new)).await.unwrap();
    }
    let claim = Claim { limit: 3, ..claim() };
    let claimed = stage.engine.claim(claim, Duration::ZERO).await.unwrap();
    assert_eq!(claimed[0].input, TaskInput::Inline(payload(0)));
    for (n, claimed) in claimed.iter().enumerate().skip(1) {
        let TaskInput::ByKey(key) = &claimed.input else { panic!("{:?}", claimed.input) };
        let found = stage.engine.payload(key).await.unwrap();
        assert_eq!(found, Some(payload(n as u8)));
    }
}

/// No wake is lost in any interleaving of creates and claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_claim_finds_its_task() {
    let stage = Stage::new().await;
    let others = stage.second(|store| store).await;
    let mut claimers = Vec::new();
    for n in 0..400 {
        let engine = if n % 2 == 0 { &stage.engine } else { &others }.clone();
        claimers.push(tokio::spawn(async move {
            engine.claim(claim(), Duration::from_secs(60)).await.unwrap()
        }));
        let creator = if n % 3 == 0 { &stage.engine } else { &others }.clone();
        tokio::spawn(async move { creator.submit(create(&format!("t{n}"))).await.unwrap() });
    }
    let mut seen = std::collections::BTreeSet::new();
    for claimer in claimers {
        for id in ids(&claimer.await.unwrap()) {
            assert!(seen.insert(id));
        }
    }
    assert_eq!(seen.len(), 400);
    assert!(stage.memory.describe().await.is_ok());
}

#[tokio::test]
async fn a_lease_in_an_unread_reply_is_released() {
    let stage = Stage::new().await;
    stage.engine.submit(create("t")).await.unwrap();
    let engine = stage.engine.clone();
    let mut claiming = Box::pin(engine.claim(claim(), Duration::ZERO));
    let batches = engine.stats().batches;
    let pushed =
        std::future::poll_fn(|cx| std::task::Poll::Ready(claiming.as_mut().poll(cx).is_pending()));
    assert!(pushed.await);
    until(|| engine.stats().batches > batches).await;
    assert_eq!(engine.task(&key("t")).await.unwrap().unwrap().attempts, 1, "the task is leased");
    drop(claiming);
    until(|| engine.stats().batches > batches + 1).await;
    let task = engine.task(&key("t")).await.unwrap().unwrap();
    assert_eq!((task.claims, task.attempts), (1, 0));
    assert_eq!(ids(&claim_now(&engine).await), ["t"]);
}

#[tokio::test]
async fn a_commit_of_another_engine_wakes_one_claim_per_task() {
    let stage = Stage::new().await;
    let other = stage.second(|store| store).await;
    let mut claimers = Vec::new();
    for _ in 0..5 {
        claimers.push(waiting(&stage, claim()).await);
    }
    let tasks = (0..5).map(|n| NewTask::new(n.to_string(), "k")).collect();
    other.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    for claimer in claimers {
        assert_eq!(claimer.await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_claim_of_the_maximum_number_of_lanes() {
    let stage = Stage::new().await;
    let names: Vec<LaneName> = (0..256).map(|n| format!("lane{n}").into()).collect();
    let wide = Claim { lanes: names.clone(), ..claim() };
    assert!(stage.engine.claim(wide.clone(), Duration::ZERO).await.unwrap().is_empty());
    for (n, lane) in names.iter().enumerate() {
        let new = NewTask { lane: lane.clone(), ..NewTask::new(n.to_string(), "k") };
        stage.engine.submit(Create::one(new)).await.unwrap();
    }
    let other = stage.second(|store| store).await;
    let wide = Claim { limit: 256, ..wide };
    assert_eq!(other.claim(wide.clone(), Duration::ZERO).await.unwrap().len(), 256);
    let third = stage.second(|store| store).await;
    assert!(third.claim(wide, Duration::ZERO).await.unwrap().is_empty());
}

#[tokio::test]
async fn tasks_of_many_routes_are_all_found() {
    let stage = Stage::new().await;
    let capability = |n: u32| [format!("c{n}")].into();
    for n in 0..600 {
        let delay = windlass_core::command::Delay::For { ms: 1_000 };
        let new = NewTask::new(n.to_string(), "k");
        let new = NewTask { capabilities: capability(n), delay, ..new };
        stage.engine.submit(Create::one(new)).await.unwrap();
    }
    stage.clock.advance_ms(1_001);
    while stage.engine.sweep().await.unwrap().0 > 0 {}
    for n in [0, 511, 512, 599] {
        let capabilities =
            windlass_core::WorkerCapabilities { names: capability(n), ..Default::default() };
        let claimed =
            stage.engine.claim(Claim { capabilities, ..claim() }, Duration::ZERO).await.unwrap();
        assert_eq!(ids(&claimed), [n.to_string()]);
    }
}

/// A claim woken for one task may lease another; the first task must still wake a claim.
#[tokio::test]
async fn a_claim_that_leases_another_task_leaves_no_ready_task_behind() {
    for elsewhere in [false, true] {
        let stage = Stage::new().await;
        let creator = match elsewhere {
            true => stage.second(|store| store).await,
            false => stage.engine.clone(),
        };
        let gpu = || std::collections::BTreeSet::from(["gpu".to_owned()]);
        let capabilities = windlass_core::WorkerCapabilities { names: gpu(), ..Default::default() };
        let able = waiting(&stage, Claim { capabilities, ..claim() }).await;
        let plain = waiting(&stage, claim()).await;
        let demanding = NewTask { capabilities: gpu(), priority: 9, ..NewTask::new("gpu", "k") };
        let tasks = vec![NewTask::new("plain", "k"), demanding];
        creator.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
        assert_eq!(ids(&able.await.unwrap()), ["gpu"]);
        assert_eq!(ids(&plain.await.unwrap()), ["plain"]);
    }
}

#[tokio::test]
async fn undelivered_leases_are_released_in_few_commits() {
    let stage = Stage::new().await;
    let tasks = (0..100).map(|n| NewTask::new(n.to_string(), "k")).collect();
    stage.engine.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let engine = stage.engine.clone();
            tokio::spawn(async move { engine.submit(claim()).await.map(|_| ()) })
        })
        .collect();
    tokio::task::yield_now().await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    for call in calls {
        let _ = call.await;
    }
    let held = || async {
        let tasks = stage
            .engine
            .tasks(&Tenant::default(), &TaskFilter::default(), None, 1_000)
            .await
            .unwrap();
        tasks.iter().filter(|task| task.attempts > 0).count()
    };
    while held().await > 0 {
        tokio::task::yield_now().await;
    }
    assert!(stage.engine.describe().await.unwrap().commits < 10);
}

#[tokio::test(start_paused = true)]
async fn a_claim_decided_before_a_create_in_the_same_batch_gets_the_task() {
    let stage = Stage::new().await;
    let mut claiming = Box::pin(stage.engine.claim(claim(), SLOW_CONFLICT));
    let pushed =
        std::future::poll_fn(|cx| std::task::Poll::Ready(claiming.as_mut().poll(cx).is_pending()));
    assert!(pushed.await);
    stage.engine.submit(create("t")).await.unwrap();
    assert_eq!(stage.engine.stats().batches, 1, "both share one batch, the claim is first");
    assert_eq!(ids(&claiming.await.unwrap()), ["t"]);
}

#[tokio::test]
async fn no_lane_starves_where_claims_alternate() {
    let stage = Stage::new().await;
    for lane in ["x", "y", "z"] {
        for n in 0..40 {
            let new = NewTask { lane: lane.into(), ..NewTask::new(format!("{lane}{n}"), "k") };
            stage.engine.submit(Create::one(new)).await.unwrap();
        }
    }
    let both = Claim { lanes: vec!["x".into(), "y".into()], ..Claim::new("both") };
    let other = Claim { lanes: vec!["z".into()], ..Claim::new("other") };
    let mut from_x = 0;
    for _ in 0..40 {
        let claimed = stage.engine.claim(both.clone(), Duration::ZERO).await.unwrap();
        from_x += usize::from(claimed[0].task.lane.as_str() == "x");
        stage.engine.claim(other.clone(), Duration::ZERO).await.unwrap();
    }
    assert!((10..=30).contains(&from_x), "{from_x} of 40 from one of two lanes");
}
