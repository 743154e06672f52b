//! The commit rules, each with a test that fails without it.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Cancel, Claim, Create, DeleteTask, NewTask, SetLaneState};
use windlass_core::{
    Command, LaneName, LaneState, Outcome, Record, Row, Settled, Task, Tenant, Timestamp, Version,
};
use windlass_engine::{Engine, Error, TaskFilter};
use windlass_store_test::{Call, CrashPoint, Failure, FaultStore};

use crate::stage::{Stage, claim, claim_now, complete, create, created, ids, key, quiet, until};

/// An engine with an injectable store on the records of `stage`.
async fn faulty(stage: &Stage) -> (Engine, FaultStore) {
    let store = FaultStore::new(Arc::new(stage.memory.another()));
    let engine = Engine::with_shared_store(Arc::new(store.clone()), quiet()).await.unwrap();
    (engine, store)
}

#[tokio::test]
async fn a_claim_that_read_the_lane_unpaused_does_not_commit_after_the_pause() {
    let stage = Stage::new().await;
    let (slow, store) = faulty(&stage).await;
    stage.engine.submit(create("t")).await.unwrap();
    let mut held = store.pause_commit(1);
    let claimer = tokio::spawn({
        let slow = slow.clone();
        async move { slow.claim(claim(), Duration::ZERO).await.unwrap() }
    });
    held.reached().await;
    let (tenant, lane) = (Tenant::default(), LaneName::default());
    let pause = SetLaneState { tenant, lane, state: LaneState::Paused };
    stage.engine.submit(pause).await.unwrap();
    held.release();
    assert!(claimer.await.unwrap().is_empty());
    assert_eq!(slow.stats().conflicts, 1);
}

#[tokio::test]
async fn a_rejection_requires_unchanged_reads() {
    let stage = Stage::new().await;
    let (slow, store) = faulty(&stage).await;
    stage.engine.submit(create("t")).await.unwrap();
    let mut held = store.pause_commit(1);
    let reaping = tokio::spawn({
        let slow = slow.clone();
        async move { slow.submit(DeleteTask { task: key("t") }).await }
    });
    held.reached().await;
    claim_now(&stage.engine).await;
    stage.engine.submit(complete(&stage.engine, "t", 1).await).await.unwrap();
    held.release();
    assert_eq!(reaping.await.unwrap().unwrap(), Outcome::TaskDeleted, "the task had ended by then");
}

#[tokio::test]
async fn a_stale_writer_does_not_recreate_a_deleted_task() {
    for again in [false, true] {
        let stage = Stage::new().await;
        let (slow, store) = faulty(&stage).await;
        let mut new = NewTask::new("t", "k");
        new.policy.retention_ms = 0;
        stage.engine.submit(Create::one(new)).await.unwrap();
        claim_now(&stage.engine).await;
        let mut held = store.pause_commit(1);
        let completing = tokio::spawn({
            let slow = slow.clone();
            async move { slow.submit(complete(&slow, "t", 1).await).await }
        });
        held.reached().await;
        stage.engine.submit(complete(&stage.engine, "t", 1).await).await.unwrap();
        stage.engine.sweep().await.unwrap();
        assert_eq!(stage.engine.task(&key("t")).await.unwrap(), None, "retention is over");
        if again {
            stage.engine.submit(create("t")).await.unwrap();
        }
        held.release();
        let rejected = completing.await.unwrap().unwrap_err();
        assert_eq!(rejected.code(), if again { "stale_fence" } else { "task_not_found" });
        let left = stage.engine.task(&key("t")).await.unwrap();
        assert_eq!(left.map(|task| task.claims), again.then_some(0));
    }
}

#[tokio::test]
async fn a_recreated_task_reuses_no_version() {
    let stage = Stage::new().await;
    let (slow, store) = faulty(&stage).await;
    stage.engine.submit(create("t")).await.unwrap();
    let mut held = store.pause_commit(1);
    let stop = || Cancel { task: key("t"), reason: "the first one".into() };
    let cancelling = tokio::spawn({
        let slow = slow.clone();
        async move { slow.submit(stop()).await }
    });
    held.reached().await;
    stage.engine.submit(stop()).await.unwrap();
    stage.engine.submit(DeleteTask { task: key("t") }).await.unwrap();
    let other = NewTask { priority: 5, ..NewTask::new("t", "k") };
    stage.engine.submit(Create::one(other)).await.unwrap();
    held.release();
    cancelling.await.unwrap().unwrap();
    assert_eq!(slow.stats().conflicts, 1, "it was decided again, on the recreated task");
    assert_eq!(stage.engine.task(&key("t")).await.unwrap().unwrap().priority, 5);
}

#[tokio::test]
async fn two_creates_of_one_id_are_one_insert() {
    let stage = Stage::new().await;
    let (slow, store) = faulty(&stage).await;
    let mut held = store.pause_commit(1);
    let creating = tokio::spawn({
        let slow = slow.clone();
        async move { slow.submit(create("t")).await }
    });
    held.reached().await;
    assert!(created(stage.engine.submit(create("t")).await.unwrap()));
    held.release();
    assert!(!created(creating.await.unwrap().unwrap()), "the second create is a duplicate");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_looked_up() {
    let point = |p| match p {
        0 => CrashPoint::BeforeCommit,
        1 => CrashPoint::InCommit,
        _ => CrashPoint::AfterCommit,
    };
    for n in 0..3 {
        for lookups_failing in [0, 3] {
            let stage = Stage::new().await;
            let (engine, store) = faulty(&stage).await;
            engine.submit(create("t")).await.unwrap();
            claim_now(&engine).await;
            store.crash(1, point(n));
            store.fail_times(Call::Outcome, lookups_failing, Failure::Unavailable);
            let result = engine.submit(complete(&stage.engine, "t", 1).await).await;
            match point(n) {
                CrashPoint::BeforeCommit => {
                    assert_eq!(result.unwrap_err().code(), "store_unavailable");
                }
                _ => assert_eq!(result.unwrap(), Outcome::Settled(Settled::Completed)),
            }
            let again = engine.submit(complete(&stage.engine, "t", 1).await).await.unwrap();
            assert_eq!(again, Outcome::Settled(Settled::Completed));
            let snapshot = stage.memory.snapshot();
            let completed = snapshot.events_after(0).filter(|logged| logged.name == "completed");
            assert_eq!(completed.count(), 1, "it took effect once");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_undeterminable_outcome_is_reported_and_a_retry_is_safe() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    store.crash(1, CrashPoint::AfterCommit);
    store.fail_times(Call::Outcome, 100, Failure::Unavailable);
    let result = engine.submit(create("t")).await;
    assert!(matches!(result, Err(Error::OutcomeUnknown)), "{result:?}");
    assert!(!created(engine.submit(create("t")).await.unwrap()), "the task was created");
}

/// A readable task row whose epoch overflows at the next claim.
fn counted_out(stage: &Stage) -> Row {
    let tables = stage.memory.snapshot();
    let row = tables.row(&key("bad").row_key()).unwrap().clone();
    let task = windlass_core::read_row::<Task>(row.schema, &row.body).unwrap();
    let task = Task { epoch: u64::MAX, priority: 9, ..(*task).clone() };
    let body = serde_json::to_string(&task).unwrap();
    Row { version: Version(1), columns: task.columns(), body, ..row }
}

#[tokio::test]
async fn a_panic_fails_only_its_own_command() {
    let stage = Stage::new().await;
    let bad = NewTask { lane: "bad".into(), ..NewTask::new("bad", "k") };
    stage.engine.submit(Create::one(bad)).await.unwrap();
    stage.memory.plant(counted_out(&stage));
    let mut calls = Vec::new();
    for n in 0..100 {
        let command: Command = match n {
            50 => Claim { lanes: vec!["bad".into()], ..claim() }.into(),
            _ => create(&n.to_string()).into(),
        };
        let engine = stage.engine.clone();
        calls.push(tokio::spawn(async move { engine.submit(command).await }));
    }
    for (n, call) in calls.into_iter().enumerate() {
        match call.await.unwrap() {
            Ok(outcome) => assert!(created(outcome) && n != 50),
            Err(error) => assert_eq!((n, error.code()), (50, "bug")),
        }
    }
    assert_eq!(stage.engine.stats().batches, 2, "the other commands shared one commit");
}

/// For example a bug in a store: no caller hangs, and the engine continues.
#[tokio::test]
async fn a_panicking_batch_does_not_stop_the_engine() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(claim(), Duration::from_secs(60)).await.unwrap() }
    });
    until(|| engine.stats().batches == 1).await;
    store.reject_if(|changes| {
        let bad = changes.inserts.iter().any(|row| row.key == key("bad").row_key());
        assert!(!bad, "a bug");
        false
    });
    let error =
        engine.submit(Create::one(NewTask { lane: "l".into(), ..NewTask::new("bad", "k") }));
    assert_eq!(error.await.unwrap_err().code(), "outcome_unknown");
    engine.submit(create("good")).await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap()), ["good"]);
    engine.shutdown().await.unwrap();
}

/// A remote wake arrives once. The waiting claim must get its task even if the batch that shares
/// the wake fails.
async fn a_remote_task_is_leased(meanwhile: impl Fn(&FaultStore)) {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(claim(), Duration::from_secs(60)).await.unwrap() }
    });
    until(|| engine.stats().batches == 1).await;
    let (mut first, mut second) = (store.pause_commit(1), store.pause_commit(2));
    let before = tokio::spawn({
        let (engine, mut claim) = (engine.clone(), claim());
        claim.lanes = vec!["elsewhere".into()];
        async move { engine.claim(claim, Duration::ZERO).await }
    });
    first.reached().await;
    let shares = tokio::spawn({
        let engine = engine.clone();
        let new = NewTask { lane: "elsewhere".into(), ..NewTask::new("shares", "k") };
        async move { engine.submit(Create::one(new)).await }
    });
    stage.engine.submit(create("ready")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    meanwhile(&store);
    first.release();
    second.reached().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    second.release();
    before.await.unwrap().unwrap();
    let _ = shares.await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap()), ["ready"]);
}

#[tokio::test(start_paused = true)]
async fn a_remote_task_is_leased_when_a_batch_is_deferred() {
    a_remote_task_is_leased(|store| store.conflict(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_remote_task_is_leased_when_a_batch_is_rejected() {
    a_remote_task_is_leased(|store| {
        let shares = key("shares").row_key();
        store.reject_if(move |changes| changes.inserts.iter().any(|row| row.key == shares));
    })
    .await;
}

#[tokio::test]
async fn a_rejected_change_fails_only_its_own_command() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    store.reject_if(|changes| changes.inserts.iter().any(|row| row.key == key("bad").row_key()));
    let mut calls = Vec::new();
    for n in 0..100 {
        let id = if n == 61 { "bad".to_owned() } else { n.to_string() };
        let engine = engine.clone();
        calls.push(tokio::spawn(async move { engine.submit(create(&id)).await }));
    }
    for (n, call) in calls.into_iter().enumerate() {
        match call.await.unwrap() {
            Ok(outcome) => assert!(created(outcome) && n != 61),
            Err(error) => assert_eq!((n, error.code()), (61, "store_rejected")),
        }
    }
    let commits = store.commits();
    assert!((2..=8).contains(&commits), "the others were committed together: {commits} commits");
}

#[tokio::test]
async fn an_unavailable_store_fails_all_commands_and_loses_nothing() {
    for failure in [Failure::Unavailable, Failure::Full] {
        for call in [Call::Begin, Call::Load, Call::Commit] {
            let stage = Stage::new().await;
            let (engine, store) = faulty(&stage).await;
            engine.submit(create("before")).await.unwrap();
            store.fail(call, 1, failure);
            let commands = vec![create("a").into(), create("b").into()];
            let results = engine.submit_many(commands).await.unwrap();
            assert!(
                results.iter().all(|a| a.as_ref().is_err_and(|e| e.code().starts_with("store_")))
            );
            assert_eq!(
                engine
                    .tasks(&Tenant::default(), &TaskFilter::default(), None, 10)
                    .await
                    .unwrap()
                    .len(),
                1
            );
            assert!(created(engine.submit(create("a")).await.unwrap()));
        }
    }
}

#[tokio::test]
async fn conflicts_are_retried_up_to_a_limit() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    store.conflict(5);
    assert!(created(engine.submit(create("t")).await.unwrap()));
    assert_eq!(engine.stats().conflicts, 5);
    store.conflict(100_000);
    let lost = engine.submit(create("u")).await.unwrap_err();
    assert_eq!(lost.code(), "store_conflict", "the number of retries is limited");
}

#[tokio::test]
async fn a_new_task_of_higher_priority_goes_first_in_its_own_batch() {
    let stage = Stage::new().await;
    for n in 0..20 {
        stage.engine.submit(create(&format!("{n:02}"))).await.unwrap();
    }
    let urgent = NewTask { priority: 5, ..NewTask::new("urgent", "k") };
    let commands: Vec<Command> =
        vec![claim().into(), Create::one(urgent).into(), Claim { limit: 2, ..claim() }.into()];
    let results = stage.engine.submit_many(commands).await.unwrap();
    let Ok(Outcome::Claimed(tasks)) = &results[2] else { panic!("{results:?}") };
    let order: Vec<_> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(order, ["urgent", "01"]);
}

#[tokio::test]
async fn time_never_falls() {
    let stage = Stage::new().await;
    stage.engine.submit(create("t")).await.unwrap();
    let at = stage.engine.task(&key("t")).await.unwrap().unwrap().created_at;
    stage.clock.set(Timestamp::from_millis(1));
    stage.engine.submit(create("u")).await.unwrap();
    let then = stage.engine.task(&key("u")).await.unwrap().unwrap().created_at;
    assert_eq!(then, at.next());
}

#[tokio::test]
async fn an_undecodable_row_blocks_only_its_own_task() {
    let stage = Stage::new().await;
    stage.engine.submit(create("odd")).await.unwrap();
    let tables = stage.memory.snapshot();
    let row = tables.row(&key("odd").row_key()).unwrap().clone();
    stage.memory.plant(Row { schema: 99, body: "{\"shape\":\"unheard of\"}".into(), ..row });
    stage.engine.submit(create("plain")).await.unwrap();
    assert_eq!(ids(&claim_now(&stage.engine).await), ["plain"]);
    let rejected = stage.engine.submit(DeleteTask { task: key("odd") }).await.unwrap_err();
    assert_eq!(rejected.code(), "quarantined");
    let fence = windlass_core::Fence { task: key("odd"), epoch: 1 };
    let done = windlass_core::command::Complete { fence, result: None };
    let rejected = stage.engine.submit(done).await.unwrap_err();
    assert_eq!(rejected.code(), "quarantined");
    assert_eq!(stage.engine.task(&key("odd")).await.unwrap_err().code(), "quarantined");
    assert!(stage.memory.snapshot().row(&key("odd").row_key()).is_some(), "the row is retained");
}

#[tokio::test]
async fn a_claim_that_joined_a_failed_batch_keeps_waiting() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(claim(), Duration::from_secs(60)).await }
    });
    crate::stage::until(|| engine.stats().batches == 1).await;
    store.fail(Call::Commit, 1, Failure::Full);
    assert_eq!(engine.submit(create("t")).await.unwrap_err().code(), "store_full");
    engine.submit(create("t")).await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap().unwrap()), ["t"]);
}

#[tokio::test]
async fn a_row_stored_under_a_wrong_key_is_quarantined() {
    let stage = Stage::new().await;
    let mut new = NewTask::new("odd", "k");
    new.policy.retention_ms = 0;
    stage.engine.submit(Create::one(new)).await.unwrap();
    claim_now(&stage.engine).await;
    stage.engine.submit(complete(&stage.engine, "odd", 1).await).await.unwrap();
    let row = stage.memory.snapshot().row(&key("odd").row_key()).unwrap().clone();
    stage.memory.plant(Row { key: key("moved").row_key(), ..row });
    let late = NewTask {
        delay: windlass_core::command::Delay::For { ms: 1_000 },
        ..NewTask::new("t", "k")
    };
    stage.engine.submit(Create::one(late)).await.unwrap();
    stage.clock.advance_ms(1_001);
    stage.engine.sweep().await.unwrap();
    assert_eq!(ids(&claim_now(&stage.engine).await), ["t"], "the sweep continues");
    let rejected = stage.engine.submit(DeleteTask { task: key("moved") }).await.unwrap_err();
    assert_eq!(rejected.code(), "quarantined");
}

#[tokio::test(start_paused = true)]
async fn a_remote_wake_survives_a_store_failure() {
    for call in [Call::Begin, Call::Load, Call::Commit] {
        let stage = Stage::new().await;
        let (engine, store) = faulty(&stage).await;
        let waiting = tokio::spawn({
            let engine = engine.clone();
            async move { engine.claim(claim(), Duration::from_secs(3_600)).await }
        });
        crate::stage::until(|| engine.stats().batches == 1).await;
        store.fail(call, 1, Failure::Unavailable);
        stage.engine.submit(create("t")).await.unwrap();
        assert_eq!(ids(&waiting.await.unwrap().unwrap()), ["t"], "{call:?}");
    }
}
