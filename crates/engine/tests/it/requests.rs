//! Idempotent requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::command::Admit;
use windlass_core::{
    ChangeSet, IGNORED_FIELDS, Outcome, Payload, Rate, Rejection, RequestKey, RequestTtls,
    fingerprint,
};
use windlass_engine::{
    AdmitError, AdmittedResponse, Config, Engine, Error, OnInFlight, RequestAdmission,
    RequestGuard, RequestPolicy, RequestScope,
};

use windlass_store::Store as _;
use windlass_store_test::{Call, Failure, FaultStore};

use crate::stage::{Stage, quiet, until};

const KEY: &str = "a-key-of-a-request";

fn scope() -> RequestScope {
    RequestScope::new("ada", "pay")
}

fn code<T: std::fmt::Debug>(rejected: Result<T, AdmitError<String>>) -> &'static str {
    match rejected.unwrap_err() {
        AdmitError::Engine(error) => error.code(),
        AdmitError::Failed(failed) => panic!("{failed}"),
    }
}

async fn pay(engine: &Engine, amount: u32) -> Result<AdmittedResponse<u32>, AdmitError<String>> {
    engine.admit(&scope(), KEY, &amount, async |_| Ok(amount)).await
}

async fn with(policy: RequestPolicy) -> Stage {
    Stage::with(Config { requests: policy, ..quiet() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_duplicates_have_one_effect_and_one_response() {
    for callers in [2, 16, 256] {
        let stage = Stage::new().await;
        let second = stage.second(|store| store).await;
        let effects = Arc::new(AtomicU32::new(0));
        let calls: Vec<_> = (0..callers)
            .map(|n| {
                let engine = if n % 2 == 0 { stage.engine.clone() } else { second.clone() };
                let effects = effects.clone();
                tokio::spawn(async move {
                    let run = async |_| {
                        tokio::task::yield_now().await;
                        Ok::<u32, String>(effects.fetch_add(1, Ordering::SeqCst))
                    };
                    engine.admit(&scope(), KEY, &7, run).await.unwrap()
                })
            })
            .collect();
        let mut first = 0;
        for call in calls {
            let AdmittedResponse { response, replayed } = call.await.unwrap();
            assert_eq!(response, 0);
            first += u32::from(!replayed);
        }
        assert_eq!((effects.load(Ordering::SeqCst), first), (1, 1), "{callers} callers");
    }
}

#[tokio::test]
async fn a_different_request_under_the_key_conflicts_immediately() {
    let stage = Stage::new().await;
    let RequestAdmission::Owner(guard) =
        stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap()
    else {
        panic!("expected the first request")
    };
    assert_eq!(code(pay(&stage.engine, 2).await), "idempotency_conflict");
    let other = RequestScope { operation: "refund".into(), ..scope() };
    let rejected = stage.engine.begin_request(&other, KEY, b"1").await.unwrap_err();
    assert_eq!(rejected.code(), "idempotency_conflict");
    guard.complete(Payload::json("1")).await.unwrap();
    assert_eq!(code(pay(&stage.engine, 2).await), "idempotency_conflict");
    assert_eq!(
        pay(&stage.engine, 1).await.unwrap(),
        AdmittedResponse { response: 1, replayed: true }
    );
    for other in [scope().tenant("t"), scope().account("a"), RequestScope::new("eve", "pay")] {
        let admission = stage.engine.begin_request(&other, KEY, b"1").await.unwrap();
        assert!(matches!(admission, RequestAdmission::Owner(_)), "{other:?}");
    }
}

#[tokio::test]
async fn a_rejected_duplicate_gets_a_retry_delay() {
    let stage =
        with(RequestPolicy { on_in_flight: OnInFlight::Reject, ..RequestPolicy::default() }).await;
    let admission = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap();
    let rejected = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap_err();
    let Error::Rejected(Rejection::IdempotencyInFlight { retry_after_ms }) = rejected else {
        panic!("{rejected}")
    };
    assert_eq!(retry_after_ms, RequestTtls::default().retry_after_ms);
    drop(admission);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_no_longer_than_its_limit() {
    let stage = Stage::new().await;
    let admission = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(code(pay(&stage.engine, 1).await), "idempotency_in_flight");
    assert_eq!(began.elapsed().as_secs(), 10);
    drop(admission);
}

#[tokio::test]
async fn a_failed_request_is_released_and_can_be_retried() {
    let stage = Stage::new().await;
    let failing = async |_| Err::<u32, _>("no funds".to_owned());
    let failed = stage.engine.admit(&scope(), KEY, &1, failing).await.unwrap_err();
    assert!(matches!(failed, AdmitError::Failed(reason) if reason == "no funds"));
    assert_eq!(
        pay(&stage.engine, 1).await.unwrap(),
        AdmittedResponse { response: 1, replayed: false }
    );
}

/// A caller that leaves midway must not leave duplicates waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_releases_its_request() {
    let stage = Stage::new().await;
    let reached = Arc::new(Notify::new());
    let (engine, there) = (stage.engine.clone(), reached.clone());
    let call = tokio::spawn(async move {
        let run = async |_| {
            there.notify_one();
            std::future::pending::<Result<u32, String>>().await
        };
        engine.admit(&scope(), KEY, &1, run).await
    });
    reached.notified().await;
    call.abort();
    assert_eq!(
        pay(&stage.engine, 1).await.unwrap(),
        AdmittedResponse { response: 1, replayed: false }
    );
}

#[tokio::test]
async fn a_late_response_is_rejected_after_a_takeover() {
    let stage = Stage::new().await;
    let RequestAdmission::Owner(late) =
        stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap()
    else {
        panic!("expected the first request")
    };
    stage.clock.advance_ms(60_000);
    assert_eq!(
        pay(&stage.engine, 1).await.unwrap(),
        AdmittedResponse { response: 1, replayed: false }
    );
    let rejected = late.complete(Payload::json("2")).await.unwrap_err();
    assert_eq!(rejected.code(), "request_lost");
    assert_eq!(
        pay(&stage.engine, 1).await.unwrap(),
        AdmittedResponse { response: 1, replayed: true }
    );
    stage.clock.advance_ms(86_400_000);
    assert_eq!(code(pay(&stage.engine, 1).await), "idempotency_expired");
}

#[tokio::test]
async fn a_saturated_rate_limiter_still_replays_responses() {
    let rate_limit = Some(Rate { limit: 1, window_ms: 60_000 });
    let stage = with(RequestPolicy { rate_limit, ..RequestPolicy::default() }).await;
    pay(&stage.engine, 1).await.unwrap();
    let another = "another-key-of-ada";
    for _ in 0..2 {
        let rejected = stage.engine.begin_request(&scope(), another, b"1").await.unwrap_err();
        assert_eq!(rejected.code(), "rate_limited", "the rejection is not stored");
    }
    assert_eq!(
        pay(&stage.engine, 1).await.unwrap(),
        AdmittedResponse { response: 1, replayed: true }
    );
    stage.clock.advance_ms(62_000);
    assert!(stage.engine.begin_request(&scope(), another, b"1").await.is_ok());
}

#[tokio::test]
async fn invalid_keys_and_ttls_are_rejected_without_side_effects() {
    let stage = Stage::new().await;
    for bad in ["", "tiny", "sixteen, no more", "with a line\nbreak in it", &"x".repeat(256)] {
        let rejected = stage.engine.begin_request(&scope(), bad, b"1").await.unwrap_err();
        assert_eq!(rejected.code(), "invalid", "{bad}");
        assert!(bad.is_empty() || !rejected.to_string().contains(bad), "{rejected}");
    }
    let lenient = with(RequestPolicy { allow_weak_keys: true, ..RequestPolicy::default() }).await;
    assert!(lenient.engine.begin_request(&scope(), "short", b"1").await.is_ok());
    let ttls = RequestTtls { replay_ms: 1_000, ..RequestTtls::default() };
    let requests = RequestPolicy { ttls, ..RequestPolicy::default() };
    let config = Config { requests, ..quiet() };
    let rejected = Engine::with_store(stage.memory.another(), config).await.unwrap_err();
    assert_eq!(rejected.code(), "invalid");
    assert_eq!(stage.engine.describe().await.unwrap().last_seq, 0);
}

/// Idempotency keys are secrets: a key gives access to the response.
#[tokio::test]
async fn no_error_discloses_a_key() {
    let stage = Stage::new().await;
    let secret = "abcdefgh-THE-SECRET-PART";
    let admission = stage.engine.begin_request(&scope(), secret, b"1").await.unwrap();
    let conflict = stage.engine.begin_request(&scope(), secret, b"2").await.unwrap_err();
    let printed = format!("{admission:?} {conflict} {conflict:?}");
    assert!(!printed.contains("SECRET"), "{printed}");
    tokio::time::timeout(Duration::from_secs(5), async { drop(admission) }).await.unwrap();
}

async fn first(engine: &Engine) -> RequestGuard {
    match engine.begin_request(&scope(), KEY, b"1").await.unwrap() {
        RequestAdmission::Owner(guard) => guard,
        RequestAdmission::Replay(response) => panic!("{response:?}"),
    }
}

async fn faulty(stage: &Stage) -> (Engine, FaultStore) {
    let store = FaultStore::new(Arc::new(stage.memory.another()));
    let engine = Engine::with_shared_store(Arc::new(store.clone()), quiet()).await.unwrap();
    (engine, store)
}

/// A finished handler must not run again because storing its response failed temporarily.
#[tokio::test]
async fn a_response_is_stored_once_the_store_recovers() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    for failure in [Failure::Unavailable, Failure::Full] {
        let guard = first(&engine).await;
        store.fail_times(Call::Commit, 3, failure);
        guard.complete(Payload::json("1")).await.unwrap();
        assert_eq!(
            pay(&engine, 1).await.unwrap(),
            AdmittedResponse { response: 1, replayed: true }
        );
        stage.clock.advance_ms(32 * 86_400_000);
    }
}

/// A caller that leaves after the handler finished does not discard the response.
#[tokio::test]
async fn a_response_is_stored_after_the_caller_left() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let guard = first(&engine).await;
    store.fail_times(Call::Commit, 1, Failure::Unavailable);
    let tried = store.calls(Call::Commit);
    tokio::select! {
        biased;
        completed = guard.complete(Payload::json("1")) => panic!("{completed:?}"),
        () = until(|| store.calls(Call::Commit) > tried) => {}
    }
    assert_eq!(pay(&engine, 1).await.unwrap(), AdmittedResponse { response: 1, replayed: true });
}

/// If a store lost a response, the caller gets an error instead of retrying forever.
#[tokio::test]
async fn a_lost_response_is_reported_as_unknown() {
    let stage = Stage::new().await;
    pay(&stage.engine, 1).await.unwrap();
    let (principal, account, key) = ("ada".into(), String::new(), KEY.into());
    let admit = Admit {
        request: RequestKey { tenant: "default".into(), principal, account, key },
        fingerprint: fingerprint("pay", b"1", IGNORED_FIELDS),
        owner: "other-owner".into(),
        ttls: RequestTtls::default(),
        rate_limit: None,
    };
    let Outcome::RequestCompleted(key) = stage.engine.submit(admit).await.unwrap() else {
        panic!()
    };
    let lost = ChangeSet { dropped_payloads: vec![key], ..ChangeSet::default() };
    stage.memory.begin().await.unwrap().commit(Arc::new(lost)).await.unwrap();
    assert_eq!(code(pay(&stage.engine, 1).await), "outcome_unknown");
}

#[tokio::test]
async fn an_invalid_request_rate_is_rejected_at_start() {
    let rate_limit = Some(Rate { limit: 0, window_ms: 60_000 });
    let requests = RequestPolicy { rate_limit, ..RequestPolicy::default() };
    let stage = Stage::new().await;
    let config = Config { requests, ..quiet() };
    let rejected = Engine::with_store(stage.memory.another(), config).await.unwrap_err();
    assert_eq!(rejected.to_string(), "rate is outside 1 to 1000000");
}

#[tokio::test]
async fn an_invalid_key_character_lists_the_valid_ones() {
    let stage = Stage::new().await;
    for bad in ["a/key/with/slashes", "a+key+with+pluses"] {
        let rejected = stage.engine.begin_request(&scope(), bad, b"1").await.unwrap_err();
        let words = "idempotency_key has a character other than ASCII letters, digits and _ . : -";
        assert_eq!(rejected.to_string(), words);
    }
}

/// The handler's failure is returned even if the store is unavailable for the release.
#[tokio::test]
async fn a_failure_is_returned_even_if_the_release_fails() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    store.fail(Call::Commit, 2, Failure::Unavailable);
    let failing = async |_| Err::<u32, _>("no funds".to_owned());
    let failed = engine.admit(&scope(), KEY, &1, failing).await.unwrap_err();
    assert!(matches!(failed, AdmitError::Failed(reason) if reason == "no funds"));
    assert!(store.is_spent());
}

/// A caller that leaves before it learns of its admission blocks no other caller.
#[tokio::test]
async fn a_caller_that_leaves_during_admission_releases_its_request() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let mut held = store.pause_commit(1);
    let asking = tokio::spawn({
        let engine = engine.clone();
        async move { engine.begin_request(&scope(), KEY, b"1").await }
    });
    held.reached().await;
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    held.release();
    assert_eq!(pay(&engine, 1).await.unwrap(), AdmittedResponse { response: 1, replayed: false });
}

/// A permanent store error is not retried until the request deadline.
#[tokio::test]
async fn a_response_rejected_by_the_store_fails_immediately() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let guard = first(&engine).await;
    store.fail(Call::Commit, 1, Failure::Rejected);
    let rejected = guard.complete(Payload::json("1")).await.unwrap_err();
    assert_eq!(rejected.code(), "store_rejected");
    assert_eq!(pay(&engine, 1).await.unwrap(), AdmittedResponse { response: 1, replayed: false });
}
