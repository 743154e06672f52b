//! Requests that are answered once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::command::Admit;
use windlass_core::{
    ChangeSet, EXCLUDED, Outcome, Payload, Rate, Rejection, RequestKey, Terms, fingerprint,
};
use windlass_engine::{
    AdmitError, Admitted, Begun, Config, Engine, Error, Racers, RequestPolicy, Scope, Ticket,
};

use windlass_store::Store as _;
use windlass_store_test::{Call, Failure, FaultStore};

use crate::stage::{Stage, quiet, until};

const KEY: &str = "a-key-of-a-request";

fn scope() -> Scope {
    Scope::new("ada", "pay")
}

fn code<T: std::fmt::Debug>(refused: Result<T, AdmitError<String>>) -> &'static str {
    match refused.unwrap_err() {
        AdmitError::Refused(error) => error.code(),
        AdmitError::Failed(failed) => panic!("{failed}"),
    }
}

async fn pay(engine: &Engine, amount: u32) -> Result<Admitted<u32>, AdmitError<String>> {
    engine.admit(&scope(), KEY, &amount, async |_| Ok(amount)).await
}

async fn with(policy: RequestPolicy) -> Stage {
    Stage::with(Config { requests: policy, ..quiet() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_has_one_effect_and_one_answer() {
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
            let Admitted { answer, replayed } = call.await.unwrap();
            assert_eq!(answer, 0);
            first += u32::from(!replayed);
        }
        assert_eq!((effects.load(Ordering::SeqCst), first), (1, 1), "{callers} callers");
    }
}

#[tokio::test]
async fn another_request_under_the_key_is_a_conflict_at_once() {
    let stage = Stage::new().await;
    let Begun::First(ticket) = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap()
    else {
        panic!("it is the first")
    };
    assert_eq!(code(pay(&stage.engine, 2).await), "idempotency_conflict");
    let other = Scope { operation: "refund".into(), ..scope() };
    let refused = stage.engine.begin_request(&other, KEY, b"1").await.unwrap_err();
    assert_eq!(refused.code(), "idempotency_conflict");
    ticket.answer(Payload::json("1")).await.unwrap();
    assert_eq!(code(pay(&stage.engine, 2).await), "idempotency_conflict");
    assert_eq!(pay(&stage.engine, 1).await.unwrap(), Admitted { answer: 1, replayed: true });
    for foreign in [scope().tenant("t"), scope().account("a"), Scope::new("eve", "pay")] {
        let begun = stage.engine.begin_request(&foreign, KEY, b"1").await.unwrap();
        assert!(matches!(begun, Begun::First(_)), "{foreign:?}");
    }
}

#[tokio::test]
async fn whoever_races_is_told_when_to_ask_again() {
    let stage = with(RequestPolicy { racers: Racers::Reject, ..RequestPolicy::default() }).await;
    let begun = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap();
    let refused = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap_err();
    let Error::Rejected(Rejection::IdempotencyInFlight { retry_after_ms }) = refused else {
        panic!("{refused}")
    };
    assert_eq!(retry_after_ms, Terms::default().retry_after_ms);
    drop(begun);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_waits_so_long_and_no_longer() {
    let stage = Stage::new().await;
    let begun = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap();
    let asked = tokio::time::Instant::now();
    assert_eq!(code(pay(&stage.engine, 1).await), "idempotency_in_flight");
    assert_eq!(asked.elapsed().as_secs(), 10);
    drop(begun);
}

#[tokio::test]
async fn what_fails_is_given_up_and_can_be_sent_again() {
    let stage = Stage::new().await;
    let failing = async |_| Err::<u32, _>("no funds".to_owned());
    let failed = stage.engine.admit(&scope(), KEY, &1, failing).await.unwrap_err();
    assert!(matches!(failed, AdmitError::Failed(reason) if reason == "no funds"));
    assert_eq!(pay(&stage.engine, 1).await.unwrap(), Admitted { answer: 1, replayed: false });
}

/// Whoever leaves in the middle leaves nobody waiting for an answer that does not come.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_gives_its_request_up() {
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
    assert_eq!(pay(&stage.engine, 1).await.unwrap(), Admitted { answer: 1, replayed: false });
}

#[tokio::test]
async fn whoever_takes_too_long_is_refused_by_its_owner() {
    let stage = Stage::new().await;
    let Begun::First(late) = stage.engine.begin_request(&scope(), KEY, b"1").await.unwrap() else {
        panic!("it is the first")
    };
    stage.clock.advance_ms(60_000);
    assert_eq!(pay(&stage.engine, 1).await.unwrap(), Admitted { answer: 1, replayed: false });
    let refused = late.answer(Payload::json("2")).await.unwrap_err();
    assert_eq!(refused.code(), "request_released");
    assert_eq!(pay(&stage.engine, 1).await.unwrap(), Admitted { answer: 1, replayed: true });
    stage.clock.advance_ms(86_400_000);
    assert_eq!(code(pay(&stage.engine, 1).await), "idempotency_expired");
}

#[tokio::test]
async fn a_saturated_limiter_still_answers_what_was_answered() {
    let growth = Some(Rate { starts: 1, window_ms: 60_000 });
    let stage = with(RequestPolicy { growth, ..RequestPolicy::default() }).await;
    pay(&stage.engine, 1).await.unwrap();
    let another = "another-key-of-ada";
    for _ in 0..2 {
        let refused = stage.engine.begin_request(&scope(), another, b"1").await.unwrap_err();
        assert_eq!(refused.code(), "rate_limited", "and that is not kept");
    }
    assert_eq!(pay(&stage.engine, 1).await.unwrap(), Admitted { answer: 1, replayed: true });
    stage.clock.advance_ms(62_000);
    assert!(stage.engine.begin_request(&scope(), another, b"1").await.is_ok());
}

#[tokio::test]
async fn bad_keys_and_bad_terms_are_refused_before_anything_is_done() {
    let stage = Stage::new().await;
    for bad in ["", "tiny", "sixteen letters!", "with a line\nbreak in it", &"x".repeat(256)] {
        let refused = stage.engine.begin_request(&scope(), bad, b"1").await.unwrap_err();
        assert_eq!(refused.code(), "invalid", "{bad}");
        assert!(bad.is_empty() || !refused.to_string().contains(bad), "{refused}");
    }
    let lenient = with(RequestPolicy { any_key: true, ..RequestPolicy::default() }).await;
    assert!(lenient.engine.begin_request(&scope(), "short", b"1").await.is_ok());
    let terms = Terms { replay_ms: 1_000, ..Terms::default() };
    let requests = RequestPolicy { terms, ..RequestPolicy::default() };
    let config = Config { requests, ..quiet() };
    let refused = Engine::start(stage.memory.another(), config).await.unwrap_err();
    assert_eq!(refused.code(), "invalid");
    assert_eq!(stage.engine.describe().await.unwrap().last_seq, 0);
}

/// Keys are secrets: whoever has one can have the answer.
#[tokio::test]
async fn no_error_tells_a_key() {
    let stage = Stage::new().await;
    let secret = "abcdefgh-THE-SECRET-PART";
    let begun = stage.engine.begin_request(&scope(), secret, b"1").await.unwrap();
    let conflict = stage.engine.begin_request(&scope(), secret, b"2").await.unwrap_err();
    let told = format!("{begun:?} {conflict} {conflict:?}");
    assert!(!told.contains("SECRET"), "{told}");
    tokio::time::timeout(Duration::from_secs(5), async { drop(begun) }).await.unwrap();
}

async fn first(engine: &Engine) -> Ticket {
    match engine.begin_request(&scope(), KEY, b"1").await.unwrap() {
        Begun::First(ticket) => ticket,
        Begun::Answered(answer) => panic!("{answer:?}"),
    }
}

async fn faulty(stage: &Stage) -> (Engine, FaultStore) {
    let store = FaultStore::new(Arc::new(stage.memory.another()));
    let engine = Engine::start_shared(Arc::new(store.clone()), quiet()).await.unwrap();
    (engine, store)
}

/// What was done is not done again because the store was away when it was to be kept.
#[tokio::test]
async fn an_answer_is_kept_as_soon_as_the_store_is_back() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    for failure in [Failure::Unavailable, Failure::Full] {
        let ticket = first(&engine).await;
        store.fail_times(Call::Commit, 3, failure);
        ticket.answer(Payload::json("1")).await.unwrap();
        assert_eq!(pay(&engine, 1).await.unwrap(), Admitted { answer: 1, replayed: true });
        stage.clock.advance_ms(32 * 86_400_000);
    }
}

/// Whoever leaves after the work was done does not undo it.
#[tokio::test]
async fn an_answer_is_kept_though_nobody_waits_for_it() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let ticket = first(&engine).await;
    store.fail_times(Call::Commit, 1, Failure::Unavailable);
    let tried = store.calls(Call::Commit);
    tokio::select! {
        biased;
        answered = ticket.answer(Payload::json("1")) => panic!("{answered:?}"),
        () = until(|| store.calls(Call::Commit) > tried) => {}
    }
    assert_eq!(pay(&engine, 1).await.unwrap(), Admitted { answer: 1, replayed: true });
}

/// Should a store ever lose an answer, whoever asks is told so, and does not ask for ever.
#[tokio::test]
async fn an_answer_that_is_lost_is_not_looked_for_for_ever() {
    let stage = Stage::new().await;
    pay(&stage.engine, 1).await.unwrap();
    let (principal, account, key) = ("ada".into(), String::new(), KEY.into());
    let admit = Admit {
        request: RequestKey { tenant: "default".into(), principal, account, key },
        fingerprint: fingerprint("pay", b"1", EXCLUDED),
        owner: "somebody".into(),
        terms: Terms::default(),
        growth: None,
    };
    let Outcome::Answered(key) = stage.engine.submit(admit).await.unwrap() else { panic!() };
    let lost = ChangeSet { dropped_payloads: vec![key], ..ChangeSet::default() };
    stage.memory.begin().await.unwrap().commit(Arc::new(lost)).await.unwrap();
    assert_eq!(code(pay(&stage.engine, 1).await), "outcome_unknown");
}

#[tokio::test]
async fn a_bad_limit_of_growth_is_refused_at_the_start() {
    let growth = Some(Rate { starts: 0, window_ms: 60_000 });
    let requests = RequestPolicy { growth, ..RequestPolicy::default() };
    let stage = Stage::new().await;
    let config = Config { requests, ..quiet() };
    let refused = Engine::start(stage.memory.another(), config).await.unwrap_err();
    assert_eq!(refused.to_string(), "rate is outside 1 to 1000000");
}

#[tokio::test]
async fn a_bad_letter_is_refused_with_those_that_are_good() {
    let stage = Stage::new().await;
    for bad in ["a/key/with/slashes", "a+key+with+pluses"] {
        let refused = stage.engine.begin_request(&scope(), bad, b"1").await.unwrap_err();
        let words = "idempotency_key has a character other than letters, digits and _ . : -";
        assert_eq!(refused.to_string(), words);
    }
}

/// Whoever fails is heard, though the store is away when its request is to be given up.
#[tokio::test]
async fn a_failure_is_told_though_it_cannot_be_given_up() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    store.fail(Call::Commit, 2, Failure::Unavailable);
    let failing = async |_| Err::<u32, _>("no funds".to_owned());
    let failed = engine.admit(&scope(), KEY, &1, failing).await.unwrap_err();
    assert!(matches!(failed, AdmitError::Failed(reason) if reason == "no funds"));
    assert!(store.is_spent());
}

/// Whoever leaves before it hears that it is the first blocks nobody.
#[tokio::test]
async fn a_caller_that_leaves_while_it_asks_gives_its_request_up() {
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
    assert_eq!(pay(&engine, 1).await.unwrap(), Admitted { answer: 1, replayed: false });
}

/// What the store will never take is not tried for as long as a request may take.
#[tokio::test]
async fn an_answer_that_the_store_refuses_is_refused_at_once() {
    let stage = Stage::new().await;
    let (engine, store) = faulty(&stage).await;
    let ticket = first(&engine).await;
    store.fail(Call::Commit, 1, Failure::Refused);
    let refused = ticket.answer(Payload::json("1")).await.unwrap_err();
    assert_eq!(refused.code(), "store_refused");
    assert_eq!(pay(&engine, 1).await.unwrap(), Admitted { answer: 1, replayed: false });
}
