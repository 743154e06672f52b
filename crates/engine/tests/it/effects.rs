//! External calls that are made once.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass_core::command::{Claim, Release};
use windlass_core::{EffectOwner, Fence};
use windlass_engine::{
    EffectError, Engine, ExternalCall, ExternalService, Lookup, RequestAdmission, RequestScope,
};

use crate::stage::{Stage, create};

/// A provider with a ledger and injectable faults.
#[derive(Default)]
struct Bank {
    books: Mutex<BTreeMap<String, u32>>,
    calls: AtomicU32,
    lookups: AtomicU32,
    /// The fences of the leases under which it was called.
    fences: Mutex<Vec<Option<Fence>>>,
    /// The response is lost.
    loses: Mutex<bool>,
    is_away: Mutex<bool>,
}

impl Bank {
    fn charges(&self) -> Vec<u32> {
        self.books.lock().unwrap().values().copied().collect()
    }

    fn counts(&self) -> (u32, u32) {
        (self.calls.load(Ordering::SeqCst), self.lookups.load(Ordering::SeqCst))
    }
}

impl ExternalService for Bank {
    type Request = u32;
    type Response = String;
    type Error = String;

    async fn invoke(&self, call: &ExternalCall, amount: &u32) -> Result<String, String> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.fences.lock().unwrap().push(call.fence.clone());
        self.books.lock().unwrap().insert(call.request_id.clone(), *amount);
        match *self.loses.lock().unwrap() {
            true => Err(format!("no answer for {}", call.request_id)),
            false => Ok(format!("charged {amount}")),
        }
    }

    async fn lookup(&self, call: &ExternalCall) -> Lookup<String> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        if *self.is_away.lock().unwrap() {
            return Lookup::Ambiguous(format!("503 for {}", call.request_id));
        }
        match self.books.lock().unwrap().get(&call.request_id) {
            Some(amount) => Lookup::Found(format!("charged {amount}")),
            None => Lookup::NotFound,
        }
    }
}

async fn claim(engine: &Engine) -> Fence {
    let claimed = engine.claim(Claim::new("w"), Duration::ZERO).await.unwrap();
    claimed[0].task.fence()
}

async fn held(stage: &Stage) -> Fence {
    stage.engine.submit(create("t")).await.unwrap();
    claim(&stage.engine).await
}

async fn charge(engine: &Engine, fence: &Fence, bank: &Bank) -> Result<String, EffectError> {
    engine.effect(EffectOwner::Task(fence.clone()), "bank").name("charge").run(bank, &7).await
}

#[tokio::test]
async fn a_stored_result_is_returned_without_a_call() {
    let (stage, bank) = (Stage::new().await, Bank::default());
    let fence = held(&stage).await;
    for _ in 0..3 {
        assert_eq!(charge(&stage.engine, &fence, &bank).await.unwrap(), "charged 7");
    }
    assert_eq!((bank.charges(), bank.counts()), (vec![7], (1, 0)));
    assert_eq!(*bank.fences.lock().unwrap(), [Some(fence.clone())], "it can reject old leases");
    let effect = stage.engine.effect(EffectOwner::Task(fence.clone()), "bank").name("charge");
    let other = effect.run(&bank, &8).await.unwrap_err();
    assert!(matches!(other, EffectError::Engine(error) if error.code() == "conflict"));
}

/// The response is lost, the first worker releases the task, and another worker retries.
#[tokio::test]
async fn a_retry_finds_an_earlier_call_by_its_request_id() {
    let (stage, bank) = (Stage::new().await, Bank::default());
    let first = held(&stage).await;
    *bank.loses.lock().unwrap() = true;
    let failed = charge(&stage.engine, &first, &bank).await.unwrap_err();
    assert_eq!(failed.to_string(), "bank failed: no answer for ..", "the request id is redacted");
    stage.engine.submit(Release { fence: first.clone() }).await.unwrap();
    let second = claim(&stage.engine).await;
    assert_eq!(charge(&stage.engine, &second, &bank).await.unwrap(), "charged 7");
    assert_eq!((bank.charges(), bank.counts()), (vec![7], (1, 1)));
    let stale = charge(&stage.engine, &first, &bank).await.unwrap_err();
    assert!(matches!(stale, EffectError::Engine(error) if error.code() == "stale_fence"));
}

#[tokio::test]
async fn an_ambiguous_lookup_fails_without_a_call() {
    let (stage, bank) = (Stage::new().await, Bank::default());
    let fence = held(&stage).await;
    *bank.loses.lock().unwrap() = true;
    charge(&stage.engine, &fence, &bank).await.unwrap_err();
    *bank.loses.lock().unwrap() = false;
    *bank.is_away.lock().unwrap() = true;
    for _ in 0..3 {
        let unknown = charge(&stage.engine, &fence, &bank).await.unwrap_err();
        assert!(matches!(unknown, EffectError::Ambiguous { .. }), "{unknown}");
        assert!(unknown.to_string().ends_with("503 for .."), "{unknown}");
    }
    *bank.is_away.lock().unwrap() = false;
    assert_eq!(charge(&stage.engine, &fence, &bank).await.unwrap(), "charged 7");
    assert_eq!((bank.charges(), bank.counts()), (vec![7], (1, 4)));
}

#[tokio::test]
async fn a_call_that_was_not_made_is_made_with_the_same_request_id() {
    let (stage, bank) = (Stage::new().await, Bank::default());
    let fence = held(&stage).await;
    *bank.loses.lock().unwrap() = true;
    charge(&stage.engine, &fence, &bank).await.unwrap_err();
    *bank.loses.lock().unwrap() = false;
    let before: Vec<String> = bank.books.lock().unwrap().keys().cloned().collect();
    bank.books.lock().unwrap().clear();
    assert_eq!(charge(&stage.engine, &fence, &bank).await.unwrap(), "charged 7");
    let after: Vec<String> = bank.books.lock().unwrap().keys().cloned().collect();
    assert_eq!(before, after);
}

/// A provider that deduplicates by key is called again, with a derived key.
#[tokio::test]
async fn a_provider_key_is_stable_and_unique_per_provider() {
    let (stage, bank) = (Stage::new().await, Bank::default());
    let fence = held(&stage).await;
    let idempotent_provider = |provider: &str| {
        stage
            .engine
            .effect(EffectOwner::Task(fence.clone()), provider)
            .name("charge")
            .idempotent_provider()
    };
    *bank.loses.lock().unwrap() = true;
    idempotent_provider("bank").run(&bank, &7).await.unwrap_err();
    *bank.loses.lock().unwrap() = false;
    stage.engine.rotate_signing_key(&"default".into(), Duration::ZERO).await.unwrap();
    idempotent_provider("bank").run(&bank, &7).await.unwrap();
    assert_eq!((bank.charges(), bank.counts()), (vec![7], (2, 0)), "the same key");
    idempotent_provider("other").run(&bank, &7).await.unwrap();
    let keys: Vec<String> = bank.books.lock().unwrap().keys().cloned().collect();
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| key.len() == 64 && !key.contains("charge")), "{keys:?}");
}

/// The claim of a call outlives the release of its request.
#[tokio::test]
async fn a_retried_request_finds_its_earlier_call() {
    let (stage, bank) = (Stage::new().await, Bank::default());
    let (scope, key) = (RequestScope::new("ada", "pay"), "a-key-of-a-request");
    let begin = async || match stage.engine.begin_request(&scope, key, b"7").await.unwrap() {
        RequestAdmission::Owner(guard) => guard,
        RequestAdmission::Replay(response) => panic!("{response:?}"),
    };
    *bank.loses.lock().unwrap() = true;
    let first = begin().await;
    let failed = first.context().effect("bank").run(&bank, &7).await.unwrap_err();
    assert!(!failed.to_string().contains(key));
    first.release().await.unwrap();
    let second = begin().await;
    let response = second.context().effect("bank").run(&bank, &7).await.unwrap();
    assert_eq!((response.as_str(), bank.charges(), bank.counts()), ("charged 7", vec![7], (1, 1)));
}

/// Equal keys or names of different callers do not collide.
#[tokio::test]
async fn a_provider_key_belongs_to_one_caller() {
    let (stage, bank) = (Stage::new().await, Bank::default());
    for (task, name) in [("a", "b/c"), ("a/b", "c")] {
        stage.engine.submit(create(task)).await.unwrap();
        let caller = EffectOwner::Task(claim(&stage.engine).await);
        stage
            .engine
            .effect(caller, "bank")
            .name(name)
            .idempotent_provider()
            .run(&bank, &7)
            .await
            .unwrap();
    }
    assert_eq!(bank.charges().len(), 2);
    let account = |account: &str| RequestScope::new("ada", "pay").account(account);
    for scope in [RequestScope::new("eve", "pay"), account(""), account("savings")] {
        let admission =
            stage.engine.begin_request(&scope, "a-key-of-a-request", b"7").await.unwrap();
        let RequestAdmission::Owner(guard) = admission else {
            panic!("expected the first request of {scope:?}")
        };
        guard.context().effect("bank").idempotent_provider().run(&bank, &7).await.unwrap();
    }
    assert_eq!(bank.charges().len(), 5);
}
