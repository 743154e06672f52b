use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Claim, NewMessage, NewWaitpoint, RotateSigningKey, Suspend};
use windlass_core::{
    Condition, Fence, Payload, PublicState, ResumeCause, Secret, Tenant, Token, WaitpointState,
};
use windlass_engine::{Config, Engine, SuspendResult};
use windlass_store::MemoryStore;
use windlass_store_test::FaultStore;

use crate::stage::{Stage, claim, claim_now, create, fence, key};

const HOUR: Duration = Duration::from_secs(3_600);

async fn held(engine: &Engine) -> Fence {
    engine.submit(create("t")).await.unwrap();
    claim_now(engine).await;
    fence(engine, "t", 1).await
}

async fn state(engine: &Engine) -> PublicState {
    engine.task(&key("t")).await.unwrap().unwrap().lifecycle.public()
}

#[tokio::test]
async fn a_signal_resumes_a_task_and_can_be_observed() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    let fence = held(engine).await;
    let with = NewWaitpoint { id: "p".into(), ttl_ms: 60_000 };
    let suspend =
        Suspend { waitpoints: vec![with], ..Suspend::new(fence, Condition::waitpoint("p")) };
    let first = engine.suspend(suspend.clone()).await.unwrap();
    assert_eq!(engine.suspend(suspend).await.unwrap(), first, "idempotent");
    let SuspendResult::Waiting(made) = first else { panic!("{first:?}") };
    let signal = || engine.complete_waitpoint(&made[0].token, "yes").source("ada").payload(&[1, 2]);
    for (unfit, field) in [
        (signal().after(HOUR), "delay"),
        (signal().buffer_for(HOUR), "if_absent"),
        (signal().start_if_absent(engine.create("k")), "if_absent"),
    ] {
        let rejected = unfit.await.unwrap_err().to_string();
        assert_eq!(rejected, format!("{field} is not allowed for waitpoints"));
    }
    let sent = signal().idempotency_key("k").await.unwrap();
    assert!(sent.resumed && !sent.duplicate);
    let again = signal().idempotency_key("k").await.unwrap();
    assert!(again.duplicate && again.seq == sent.seq);
    assert_eq!(signal().await.unwrap_err().code(), "waitpoint_completed");
    let observed = engine.resuming_signals(&key("t")).await.unwrap();
    assert_eq!(observed.len(), 1);
    assert_eq!(observed[0].message.source, "ada");
    assert_eq!(observed[0].payload, Some(Payload::json("[1,2]")));
    assert_eq!(observed[0].json::<Vec<u32>>().unwrap(), [1, 2]);
    assert_eq!(observed[0].json::<String>().unwrap_err().code(), "payload_encoding");
    let claimed = engine.claim(claim(), Duration::ZERO).await.unwrap();
    let task = &claimed[0].task;
    assert_eq!((task.attempts, task.claims), (1, 2));
    assert_eq!(task.resumption.as_ref().map(|r| r.cause), Some(ResumeCause::Signals));
    assert_eq!(engine.consume_messages(&task.fence(), vec![1, 2]).await.unwrap(), 1);
    assert!(engine.resuming_signals(&key("t")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_waiting_claim_is_woken_by_the_signal() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    let fence = held(engine).await;
    engine.suspend(Suspend::new(fence, Condition::signal("go"))).await.unwrap();
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(Claim::new("w"), HOUR).await }
    });
    tokio::task::yield_now().await;
    assert!(engine.signal("t", "go").await.unwrap().resumed);
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn messages_are_listed_in_pages_with_payloads() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    engine.submit(create("t")).await.unwrap();
    let carried = |n: u32| n.is_multiple_of(2).then(|| Payload::json(n.to_string()));
    let message = |n: u32| NewMessage { payload: carried(n), ..NewMessage::new("t", "a", "ops") };
    let messages = (1..=5).map(message).collect();
    let sent = engine.send_messages(&Tenant::default(), messages).await.unwrap();
    assert_eq!(sent.len(), 5);
    let first = engine.messages(&key("t"), 0, 3).await.unwrap();
    let rest = engine.messages(&key("t"), first[2].message.seq, 3).await.unwrap();
    let all: Vec<_> = first.iter().chain(&rest).map(|r| (r.message.seq, &r.payload)).collect();
    let expected: Vec<_> = (1..=5).map(|n| (u64::from(n), carried(n))).collect();
    assert_eq!(all, expected.iter().map(|(seq, payload)| (*seq, payload)).collect::<Vec<_>>());
    let other = engine.signal("t", "b").tenant("acme").await.unwrap_err();
    assert_eq!(other.code(), "task_not_found");
}

#[tokio::test]
async fn waitpoints_are_listed_without_their_tokens() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    for id in ["t", "u"] {
        engine.submit(create(id)).await.unwrap();
    }
    let tenant = Tenant::default();
    let made = engine.create_waitpoint(&key("t"), "b", HOUR).await.unwrap();
    for (task, id) in [("t", "a"), ("t", "c"), ("u", "d")] {
        engine.create_waitpoint(&key(task), id, HOUR).await.unwrap();
    }
    engine.complete_waitpoint(&made.token, "yes").await.unwrap();
    let page = engine.waitpoints(&tenant, None, None, 3).await.unwrap();
    let rest = engine.waitpoints(&tenant, None, Some(&page[2].id), 3).await.unwrap();
    let ids: Vec<_> = page.iter().chain(&rest).map(|w| w.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
    let own = engine.waitpoints(&tenant, Some(&"u".into()), None, 10).await.unwrap();
    assert_eq!(own.iter().map(|w| w.id.as_str()).collect::<Vec<_>>(), ["d"]);
    assert_eq!(page[1].state, WaitpointState::Completed { seq: 1 });
    let mac = made.token.expose_secret().rsplit('.').next().unwrap();
    assert!(!format!("{page:?}").contains(mac));
    assert_ne!(page[0].fingerprint, page[1].fingerprint);
}

#[tokio::test]
async fn signing_keys_are_seeded_once_and_rotated_without_disclosure() {
    let stage = Stage::new().await;
    let second = stage.second(|store| store).await;
    let tenant = Tenant::default();
    stage.engine.submit(create("t")).await.unwrap();
    let (task, other) = (key("t"), &second);
    let made = tokio::join!(
        stage.engine.create_waitpoint(&task, "a", HOUR),
        other.create_waitpoint(&task, "b", HOUR)
    );
    let (a, b) = (made.0.unwrap(), made.1.unwrap());
    let keys = stage.engine.signing_keys(&tenant).await.unwrap();
    assert_eq!(keys.len(), 1, "both sign with the same key: {keys:?}");
    let id = stage.engine.rotate_signing_key(&tenant, HOUR).await.unwrap();
    let keys = second.signing_keys(&tenant).await.unwrap();
    assert_eq!(keys.iter().map(|key| key.expires_at.is_none()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(keys[1].id, id);
    assert_ne!(keys[0].fingerprint, keys[1].fingerprint);
    second.complete_waitpoint(&a.token, "yes").await.unwrap();
    stage.clock.advance_ms(3_600_001);
    let late = stage.engine.complete_waitpoint(&b.token, "yes").await.unwrap_err();
    assert_eq!(late.code(), "token_invalid");
    let secret = Secret::new("07".repeat(32));
    let own = RotateSigningKey { tenant, id: "own".into(), secret, grace_ms: 0, if_absent: false };
    stage.engine.submit(own).await.unwrap();
    assert!(
        !format!("{:?}", second.signing_keys(&Tenant::default()).await.unwrap()).contains("0707")
    );
}

#[tokio::test]
async fn an_operator_resumes_and_invalid_tokens_are_rejected_alike() {
    let stage = Stage::new().await;
    let engine = &stage.engine;
    let fence = held(engine).await;
    assert_eq!(engine.resume(&key("t"), "ada").await.unwrap_err().code(), "not_suspended");
    engine.suspend(Suspend::new(fence, Condition::Operator)).await.unwrap();
    for text in ["", "wl1.a.b.1.00", "nonsense"] {
        let rejected = engine.complete_waitpoint(&Token::new(text), "go").await.unwrap_err();
        assert_eq!(rejected.to_string(), "this token is invalid");
    }
    assert_eq!(state(engine).await, PublicState::Suspended);
    engine.resume(&key("t"), "ada").await.unwrap();
    assert_eq!(state(engine).await, PublicState::Resumable);
}

/// A turn takes a few megabytes of pending inputs. Payloads beyond that are not read.
#[tokio::test]
async fn payloads_beyond_one_turn_are_hardly_read() {
    const MESSAGES: usize = 60;
    let faults = FaultStore::new(Arc::new(MemoryStore::new()));
    let engine = Engine::with_store(faults.clone(), Config::default()).await.unwrap();
    let handle = engine.start_workflow_named::<()>("w", &()).id("t").await.unwrap();
    for _ in 0..MESSAGES {
        handle.signal("m", &"x".repeat(250_000)).await.unwrap();
    }
    let workflow = handle.task().await.unwrap();
    let before = faults.rows();
    let inputs = engine.pending_inputs(&workflow).await.unwrap();
    assert_eq!(inputs.len(), 16, "of 250,000 bytes each");
    let payloads = faults.rows() - before - MESSAGES as u64;
    assert!(payloads <= 32, "{payloads} payloads were read");
    engine.shutdown().await.unwrap();
}
