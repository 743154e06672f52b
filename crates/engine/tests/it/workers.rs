//! Worker records, grants and revocations.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{
    Claim, ClaimGranted, Complete, Create, DeregisterWorker, NewTask, RegisterWorker,
};
use windlass_core::{Payload, Rejection, Tenant, Why, Worker, WorkerCapabilities};
use windlass_engine::{Config, Engine, Error, TaskInput};

use crate::stage::{Stage, claim_now, create, ids, key, quiet, until};

fn register(id: &str, lane: &str, capability: &str) -> RegisterWorker {
    RegisterWorker {
        tenant: Tenant::default(),
        id: id.into(),
        lanes: [lane.into()].into(),
        capabilities: WorkerCapabilities {
            names: [capability.to_owned()].into(),
            ..WorkerCapabilities::default()
        },
        heartbeat_interval_ms: 1_000,
        held: None,
    }
}

#[tokio::test]
async fn a_granted_task_goes_only_to_its_worker_with_its_payload() {
    let Stage { engine, .. } = Stage::new().await;
    let payload = Payload::json("{}");
    let new = NewTask { payload: Some(payload.clone()), ..NewTask::new("t", "k") };
    engine.submit(Create::one(new)).await.unwrap();
    engine.grant(&key("t"), "v", Duration::from_secs(10)).await.unwrap();
    let why = engine.why(&key("t")).await.unwrap();
    assert!(matches!(why, Some(Why::Granted { worker, .. }) if worker.as_str() == "v"));
    assert!(claim_now(&engine).await.is_empty());
    let rejected = engine.claim_granted(ClaimGranted::new("t", "w")).await;
    assert!(matches!(rejected, Err(Error::Rejected(Rejection::NotGranted))), "{rejected:?}");
    let claimed = engine.claim_granted(ClaimGranted::new("t", "v")).await.unwrap();
    assert_eq!(claimed.input, TaskInput::Inline(payload));
    engine.submit(Complete { fence: claimed.task.fence(), result: None }).await.unwrap();
}

#[tokio::test]
async fn a_waiting_claim_gets_a_task_whose_grant_expired() {
    let stage = Stage::with(Config::default()).await;
    let Stage { engine, clock, .. } = &stage;
    engine.submit(create("t")).await.unwrap();
    engine.grant(&key("t"), "v", Duration::from_secs(10)).await.unwrap();
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(Claim::new("w"), Duration::from_secs(3_600)).await.unwrap() }
    });
    until(|| true).await;
    clock.advance_ms(10_001);
    engine.sweep().await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap()), ["t"]);
}

#[tokio::test]
async fn a_waiting_claim_gets_a_revoked_task() {
    let Stage { engine, .. } = Stage::new().await;
    engine.submit(create("t")).await.unwrap();
    let held = claim_now(&engine).await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(Claim::new("v"), Duration::from_secs(3_600)).await.unwrap() }
    });
    until(|| true).await;
    engine.revoke(&key("t"), "it is needed elsewhere").await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap()), ["t"]);
    let late = engine.submit(Complete { fence: held[0].task.fence(), result: None }).await;
    assert_eq!(late.unwrap_err().code(), "stale_fence");
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_reply_leases_nothing() {
    let Stage { engine, .. } = Stage::new().await;
    engine.submit(create("t")).await.unwrap();
    engine.grant(&key("t"), "v", Duration::from_secs(10)).await.unwrap();
    let mut consume = Box::pin(engine.claim_granted(ClaimGranted::new("t", "v")));
    // Polled once, so that the command is queued; then the caller leaves.
    tokio::select! {
        biased;
        _ = &mut consume => panic!("no reply is possible yet"),
        () = std::future::ready(()) => {}
    }
    drop(consume);
    // The undelivered lease was not taken, so the grant still exists.
    let claimed = engine.claim_granted(ClaimGranted::new("t", "v")).await.unwrap();
    assert_eq!(claimed.task.claims, 1);
}

#[tokio::test]
async fn registered_workers_are_listed_in_pages() {
    let Stage { engine, .. } = Stage::new().await;
    for n in 0..5 {
        engine.submit(register(&format!("w{n}"), "l", "gpu")).await.unwrap();
    }
    engine.submit(DeregisterWorker { tenant: Tenant::default(), id: "w2".into() }).await.unwrap();
    let tenant = Tenant::default();
    let first = engine.workers(&tenant, None, 3).await.unwrap();
    let names = |page: &[Arc<Worker>]| {
        page.iter().map(|worker| worker.id.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&first), "w0 w1 w3");
    let rest = engine.workers(&tenant, Some(&first[2].id), 3).await.unwrap();
    assert_eq!(names(&rest), "w4");
    assert!(engine.workers(&"acme".into(), None, 3).await.unwrap().is_empty());
}

/// An engine without local claims finds the workers of other engines in the records.
#[tokio::test]
async fn why_knows_the_workers_of_all_engines() {
    let stage = Stage::new().await;
    let observer = Engine::with_store(stage.memory.another(), quiet()).await.unwrap();
    let new = NewTask { capabilities: ["gpu".to_owned()].into(), ..NewTask::new("t", "k") };
    observer.submit(Create::one(new)).await.unwrap();
    let why = async || observer.why(&key("t")).await.unwrap().unwrap();
    assert!(matches!(why().await, Why::Ready { .. }), "no worker is known");
    stage.engine.submit(register("w", "another", "gpu")).await.unwrap();
    assert!(matches!(why().await, Why::NoWorker { .. }), "no worker serves this lane");
    stage.engine.submit(register("w", "default", "ssd")).await.unwrap();
    let Why::NoCapableWorker { missing, .. } = why().await else { panic!("{:?}", why().await) };
    assert_eq!(missing, ["gpu"]);
    stage.engine.submit(register("v", "default", "gpu")).await.unwrap();
    assert_eq!(why().await, Why::Queued);
    stage
        .engine
        .submit(DeregisterWorker { tenant: Tenant::default(), id: "v".into() })
        .await
        .unwrap();
    assert!(matches!(why().await, Why::NoCapableWorker { .. }));
    claim_now(&observer).await;
    assert!(matches!(why().await, Why::NoCapableWorker { .. }), "nor is the local worker");
}
