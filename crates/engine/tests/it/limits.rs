//! Concurrency limits as callers see them: which claim gets which task, in which commit.

use std::time::Duration;

use windlass_core::command::{Claim, Create, NewTask, QuotaScope, SetQuota};
use windlass_core::{LimitKey, LimitKind, PublicState, Rate, SESSIONS, Tenant, Why};
use windlass_engine::Config;

use crate::stage::{Stage, claim, complete, create, ids, key, until};

const SLOW_CONFLICT: Duration = Duration::from_secs(3_600);

fn keyed(id: &str) -> Create {
    let limit_key = Some(LimitKey::Concurrency("k".into()));
    Create::one(NewTask { limit_key, ..NewTask::new(id, "k") })
}

fn of_session(id: &str) -> Create {
    let limit_key = Some(LimitKey::Session("s".into()));
    Create::one(NewTask { limit_key, ..NewTask::new(id, "k") })
}

fn claim_as(worker: &str) -> Claim {
    let mut claim = Claim::new(worker);
    claim.capabilities.names.insert(SESSIONS.to_owned());
    claim
}

fn quota(scope: QuotaScope, limit: Option<u32>, rate: Option<Rate>) -> SetQuota {
    SetQuota { tenant: Tenant::default(), scope, limit, rate }
}

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

async fn commits(stage: &Stage) -> u64 {
    stage.engine.describe().await.unwrap().commits
}

/// The lease holder of many concurrency keys dies while other tasks wait for each key.
#[tokio::test]
async fn many_leases_with_concurrency_keys_expire_together() {
    let stage = Stage::with(Config { background: false, ..Config::default() }).await;
    let of = |n: u32, id: &str| NewTask {
        limit_key: Some(LimitKey::Concurrency(n.to_string())),
        ..NewTask::new(format!("{id}{n}"), "k")
    };
    let tasks = (0..200).flat_map(|n| [of(n, "a"), of(n, "b")]).collect();
    stage.engine.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    let all = || Claim { limit: 1_000, lease_ms: 30_000, ..claim() };
    assert_eq!(stage.engine.claim(all(), Duration::ZERO).await.unwrap().len(), 200);
    stage.clock.advance_ms(30_001);
    let (swept, _) = stage.engine.sweep().await.unwrap();
    assert_eq!(swept, 200);
    assert_eq!(stage.engine.claim(all(), Duration::ZERO).await.unwrap().len(), 200);
}

/// A lane beyond the number that a quota remembers is woken too.
#[tokio::test]
async fn a_lane_beyond_the_remembered_starved_lanes_is_woken() {
    let stage = Stage::new().await;
    stage.engine.submit(create("held")).await.unwrap();
    stage.engine.submit(quota(QuotaScope::Tenant, Some(1), None)).await.unwrap();
    stage.engine.claim(claim(), Duration::ZERO).await.unwrap();
    let lane = |n: u32| windlass_core::LaneName::new(format!("lane{n:03}"));
    let new = |n| NewTask { lane: lane(n), ..NewTask::new(format!("at{n}"), "k") };
    let tasks = [0, 299].map(new).into();
    stage.engine.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    for n in 0..299 {
        let there = Claim { lanes: vec![lane(n)], ..claim() };
        stage.engine.claim(there, Duration::ZERO).await.unwrap();
    }
    let last = waiting(&stage, Claim { lanes: vec![lane(299)], ..claim() }).await;
    stage.engine.submit(complete(&stage.engine, "held", 1).await).await.unwrap();
    assert_eq!(ids(&last.await.unwrap()), ["at299"]);
}

#[tokio::test]
async fn completing_a_task_leases_the_next_of_its_key_in_one_commit() {
    let stage = Stage::new().await;
    for id in ["a", "b", "c"] {
        stage.engine.submit(keyed(id)).await.unwrap();
    }
    let first = stage.engine.claim(claim(), Duration::ZERO).await.unwrap();
    assert_eq!(ids(&first), ["a"]);
    let claimer = waiting(&stage, claim()).await;
    let other = waiting(&stage, claim()).await;
    let before = commits(&stage).await;
    stage.engine.submit(complete(&stage.engine, "a", 1).await).await.unwrap();
    assert_eq!(ids(&claimer.await.unwrap()), ["b"]);
    assert_eq!(commits(&stage).await, before + 1);
    assert!(!other.is_finished(), "c is behind b");
    let limit = stage
        .engine
        .concurrency_limit(&Tenant::default(), LimitKind::Concurrency, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((limit.running, limit.admitted, limit.blocked), (1, 0, 1));
    other.abort();
}

#[tokio::test]
async fn a_session_task_wakes_the_worker_that_owns_the_session() {
    let stage = Stage::new().await;
    stage.engine.submit(of_session("a")).await.unwrap();
    let first = stage.engine.claim(claim_as("w"), Duration::ZERO).await.unwrap();
    assert_eq!(ids(&first), ["a"]);
    stage.engine.submit(complete(&stage.engine, "a", 1).await).await.unwrap();
    let stranger = waiting(&stage, claim_as("v")).await;
    let owner = waiting(&stage, claim_as("w")).await;
    stage.engine.submit(of_session("b")).await.unwrap();
    assert_eq!(ids(&owner.await.unwrap()), ["b"], "although the other claim has waited longer");
    assert!(!stranger.is_finished());
    stranger.abort();
}

#[tokio::test]
async fn a_tenant_quota_wakes_starved_claims_of_other_lanes() {
    let stage = Stage::new().await;
    stage.engine.submit(quota(QuotaScope::Tenant, Some(1), None)).await.unwrap();
    stage.engine.submit(create("a")).await.unwrap();
    let elsewhere = NewTask { lane: "other".into(), ..NewTask::new("b", "k") };
    stage.engine.submit(Create::one(elsewhere)).await.unwrap();
    let first = stage.engine.claim(claim(), Duration::ZERO).await.unwrap();
    assert_eq!(ids(&first), ["a"]);
    let claimer = waiting(&stage, Claim { lanes: vec!["other".into()], ..claim() }).await;
    let why = stage.engine.why(&key("b")).await.unwrap().unwrap();
    assert!(
        matches!(why, Why::QuotaExceeded { kind: LimitKind::Tenant, running: 1, .. }),
        "{why:?}"
    );
    stage.engine.submit(complete(&stage.engine, "a", 1).await).await.unwrap();
    assert_eq!(ids(&claimer.await.unwrap()), ["b"]);
}

/// Without further claims or polling: the sweep runs when the window has passed.
#[tokio::test]
async fn a_rate_limit_admits_the_next_task_after_its_window() {
    let stage = Stage::new().await;
    let rate = Some(Rate { limit: 1, window_ms: 10_000 });
    let scopes = [QuotaScope::Concurrency("k".into()), QuotaScope::Lane("default".into())];
    stage.engine.submit(keyed("a")).await.unwrap();
    stage.engine.submit(keyed("b")).await.unwrap();
    for scope in scopes {
        stage.engine.submit(quota(scope, None, rate)).await.unwrap();
    }
    assert_eq!(ids(&stage.engine.claim(claim(), Duration::ZERO).await.unwrap()), ["a"]);
    stage.engine.submit(complete(&stage.engine, "a", 1).await).await.unwrap();
    let claimer = waiting(&stage, claim()).await;
    let state = stage.engine.task(&key("b")).await.unwrap().unwrap().lifecycle.public();
    assert_eq!(state, PublicState::Blocked);
    let (_, next_due) = stage.engine.sweep().await.unwrap();
    assert!(!claimer.is_finished());
    let retry_at = next_due.expect("a task waits for the rate limit");
    let now = windlass_store::Clock::now(&*stage.clock);
    assert!(now.plus_ms(10_000) < retry_at && retry_at < now.plus_ms(10_400), "{retry_at:?}");
    stage.clock.set(retry_at);
    stage.engine.sweep().await.unwrap();
    assert_eq!(ids(&claimer.await.unwrap()), ["b"]);
}

#[tokio::test]
async fn concurrency_limits_are_listed_in_pages() {
    let stage = Stage::new().await;
    for n in 0..5 {
        let limit_key = Some(LimitKey::Concurrency(format!("k{n}")));
        let new = NewTask { limit_key, ..NewTask::new(format!("t{n}"), "k") };
        stage.engine.submit(Create::one(new)).await.unwrap();
    }
    stage.engine.submit(of_session("s")).await.unwrap();
    let tenant = Tenant::default();
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page =
            stage.engine.concurrency_limits(&tenant, None, after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        names.extend(page.iter().map(|limit| limit.name.clone()));
        after = Some(last.clone());
    }
    assert_eq!(names, ["k0", "k1", "k2", "k3", "k4", "s"]);
    let sessions = stage
        .engine
        .concurrency_limits(&tenant, Some(LimitKind::Session), None, 100)
        .await
        .unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        stage.engine.concurrency_limits(&"other".into(), None, None, 9).await.unwrap().len(),
        0
    );
}

/// Many workers compete for each concurrency key: at most one task of a key runs at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_run_one_task_of_a_key_at_a_time() {
    const TASKS: usize = 60;
    let store = windlass_store::MemoryStore::new();
    let engine = windlass_engine::Engine::with_store(store, Config::default()).await.unwrap();
    let names = (0..TASKS).map(|n| {
        let limit_key = Some(LimitKey::Concurrency(format!("k{}", n % 3)));
        NewTask { limit_key, ..NewTask::new(format!("t{n:02}"), "k") }
    });
    let create = Create { tenant: Tenant::default(), tasks: names.collect() };
    engine.submit(create).await.unwrap();
    let running = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let workers = (0..8).map(|worker| {
        let (engine, running) = (engine.clone(), running.clone());
        tokio::spawn(async move {
            let mut done = 0;
            loop {
                let claim = Claim::new(format!("w{worker}"));
                let claimed = engine.claim(claim, Duration::from_millis(500)).await.unwrap();
                let Some(claimed) = claimed.into_iter().next() else { return done };
                let limit_key = claimed.task.limit_key.clone().unwrap();
                assert!(
                    running.lock().unwrap().insert(limit_key.clone()),
                    "two of {limit_key:?} at once"
                );
                tokio::task::yield_now().await;
                running.lock().unwrap().remove(&limit_key);
                let fence = claimed.task.fence();
                let complete = windlass_core::command::Complete { fence, result: None };
                engine.submit(complete).await.unwrap();
                done += 1;
            }
        })
    });
    let mut done = 0;
    for worker in workers.collect::<Vec<_>>() {
        done += worker.await.unwrap();
    }
    assert_eq!(done, TASKS);
    assert!(engine.concurrency_limits(&Tenant::default(), None, None, 9).await.unwrap().is_empty());
    engine.shutdown().await.unwrap();
}
