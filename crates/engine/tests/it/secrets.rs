//! Idempotency keys are secrets: logs and errors contain at most their first eight characters.

use std::fmt::{self, Debug, Display, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use windlass_core::command::{
    Admit, Charge, ClaimEffect, CompleteRequest, Create, IdempotencyWindow, NewTask,
    ReleaseRequest, SettleEffect, Spend, Sweep,
};
use windlass_core::{
    Admission, Command, EffectOwner, IGNORED_FIELDS, IdempotencyKey, Outcome, Payload, Rate,
    RequestKey, RequestTtls, Tenant, fingerprint,
};
use windlass_engine::{
    AdmitError, Config, EffectError, Engine, ExternalCall, ExternalService, Lookup, OnInFlight,
    RequestAdmission, RequestContext, RequestGuard, RequestPolicy, RequestScope,
};
use windlass_store_test::{Call as StoreCall, Failure, FaultStore};

use crate::stage::{Stage, quiet};

const KEY: &str = "abcdefgh-THE-TAIL-of-it";
const OTHER: &str = "abcdefgh-THE-TAIL-of-another";
const TAIL: &str = "THE-TAIL";

/// Everything that was logged or returned as an error.
#[derive(Clone, Default)]
struct CapturedText(Arc<Mutex<String>>);

impl CapturedText {
    fn append(&self, said: impl Display) {
        writeln!(self.0.lock().unwrap(), "{said}").unwrap();
    }

    fn error<T: Debug, E: Display + Debug>(&self, result: Result<T, E>) -> E {
        let error = result.unwrap_err();
        self.append(format!("{error} {error:?} {error:#?}"));
        error
    }

    fn all(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl Visit for CapturedText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.append(format!("{field}={value:?}"));
    }
}

/// Records every level of detail.
impl Subscriber for CapturedText {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.append(span.metadata().name());
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.append(event.metadata().level());
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A provider that repeats everything it received in its errors.
#[derive(Default)]
struct Gossip {
    ids: Mutex<Vec<String>>,
    is_away: Mutex<bool>,
}

impl Gossip {
    fn says(&self, call: &ExternalCall) -> String {
        self.ids.lock().unwrap().push(call.request_id.clone());
        let loud = call.request_id.to_uppercase();
        format!("{KEY} under {}, {loud}, said {call:?} \u{130}", call.request_id)
    }
}

impl ExternalService for Gossip {
    type Request = u32;
    type Response = u32;
    type Error = String;

    async fn invoke(&self, call: &ExternalCall, amount: &u32) -> Result<u32, String> {
        let said = self.says(call);
        if *self.is_away.lock().unwrap() { Err(said) } else { Ok(*amount) }
    }

    async fn lookup(&self, call: &ExternalCall) -> Lookup<u32> {
        Lookup::Ambiguous(self.says(call))
    }
}

fn scope() -> RequestScope {
    RequestScope::new("ada", "pay")
}

async fn first(engine: &Engine, key: &str) -> RequestGuard {
    match engine.begin_request(&scope(), key, b"1").await.unwrap() {
        RequestAdmission::Owner(guard) => guard,
        RequestAdmission::Replay(response) => panic!("{response:?}"),
    }
}

async fn rejected(engine: &Engine, captured: &CapturedText, key: &str, body: &[u8], code: &str) {
    let rejected = captured.error(engine.begin_request(&scope(), key, body).await);
    assert_eq!(rejected.code(), code);
}

fn policy() -> RequestPolicy {
    let rate_limit = Some(Rate { limit: 3, window_ms: 60_000 });
    RequestPolicy { on_in_flight: OnInFlight::Reject, rate_limit, ..RequestPolicy::default() }
}

async fn stage() -> (Stage, Engine, FaultStore) {
    let stage = Stage::new().await;
    let store = FaultStore::new(Arc::new(stage.memory.another()));
    let config = Config { requests: policy(), ..quiet() };
    let engine = Engine::with_shared_store(Arc::new(store.clone()), config).await.unwrap();
    (stage, engine, store)
}

/// Asserts that no key and no request id was disclosed.
fn check_no_secret(captured: &CapturedText, gossip: &Gossip) {
    let all = captured.all();
    assert!(!all.contains(TAIL), "{all}");
    for id in gossip.ids.lock().unwrap().iter() {
        assert!(!all.to_lowercase().contains(&id[8..]), "{id} in {all}");
    }
}

#[tokio::test]
async fn a_request_does_not_disclose_its_key() {
    let captured = CapturedText::default();
    let _subscriber = tracing::subscriber::set_default(captured.clone());
    let (stage, engine, store) = stage().await;
    for bad in [format!("{KEY}/"), format!("{KEY}\n"), KEY.repeat(20)] {
        rejected(&engine, &captured, &bad, b"1", "invalid").await;
    }
    let guard = first(&engine, KEY).await;
    rejected(&engine, &captured, KEY, b"2", "idempotency_conflict").await;
    rejected(&engine, &captured, KEY, b"1", "idempotency_in_flight").await;
    captured.append(format!("{guard:?} {:?}", guard.context()));
    stage.clock.advance_ms(60_000);
    let second = first(&engine, KEY).await;
    captured.error(guard.complete(Payload::json("1")).await);
    second.complete(Payload::json("1")).await.unwrap();
    captured.append(format!("{:?}", engine.begin_request(&scope(), KEY, b"1").await));
    for n in 0..2 {
        first(&engine, &format!("{OTHER}{n}")).await.release().await.unwrap();
    }
    rejected(&engine, &captured, OTHER, b"1", "rate_limited").await;
    stage.clock.advance_ms(86_400_000);
    rejected(&engine, &captured, KEY, b"1", "idempotency_expired").await;
    engine.submit(Sweep::default()).await.unwrap();
    rejected(&engine, &captured, KEY, b"1", "idempotency_expired").await;
    for failure in [Failure::Rejected, Failure::Unavailable, Failure::Full, Failure::Corrupt] {
        store.fail(StoreCall::Commit, 1, failure);
        captured.error(engine.begin_request(&scope(), OTHER, b"1").await);
    }
    let guard = first(&engine, OTHER).await;
    store.fail_times(StoreCall::Commit, 2, Failure::Unavailable);
    guard.complete(Payload::json("1")).await.unwrap();
    assert!(captured.all().contains("injected by a test"), "the log is recorded");
    check_no_secret(&captured, &Gossip::default());
}

/// The handler fails, panics, and is dropped midway.
#[tokio::test]
async fn a_handler_does_not_disclose_its_request_key() {
    let captured = CapturedText::default();
    let _subscriber = tracing::subscriber::set_default(captured.clone());
    let (_stage, engine, store) = stage().await;
    let failing = async |_| Err::<u32, _>("no funds".to_owned());
    captured.error(engine.admit(&scope(), KEY, &1, failing).await);
    let unwritable = async |_| Ok::<_, String>(std::collections::BTreeMap::from([((1, 2), 3)]));
    captured.error(engine.admit(&scope(), KEY, &1, unwritable).await);
    let panicking = {
        let engine = engine.clone();
        tokio::spawn(async move {
            let run = async |context| -> Result<u32, String> { panic!("{context:?}") };
            engine.admit(&scope(), KEY, &1, run).await
        })
    };
    let ended = panicking.await.unwrap_err();
    captured.append(format!("{ended} {ended:?}"));
    captured.append(ended.into_panic().downcast_ref::<String>().unwrap());
    // The release fails, and that is logged.
    let guard = first(&engine, OTHER).await;
    store.fail(StoreCall::Commit, 1, Failure::Unavailable);
    drop(guard);
    crate::stage::until(|| captured.all().contains("releasing a request failed")).await;
    check_no_secret(&captured, &Gossip::default());
}

#[tokio::test]
async fn a_call_does_not_disclose_its_request_id() {
    let captured = CapturedText::default();
    let _subscriber = tracing::subscriber::set_default(captured.clone());
    let (stage, engine, store) = stage().await;
    let gossip = Gossip { is_away: Mutex::new(true), ..Gossip::default() };
    let guard = first(&engine, KEY).await;
    let call = |name: &str| guard.context().effect("bank").name(name);
    captured.append(format!("{:?}", call("charge")));
    let failed = captured.error(call("charge").run(&gossip, &1).await);
    assert!(matches!(failed, EffectError::Failed { .. }));
    let unknown = captured.error(call("charge").run(&gossip, &1).await);
    assert!(matches!(unknown, EffectError::Ambiguous { .. }));
    captured.error(call("charge").run(&gossip, &2).await);
    for _ in 0..2 {
        captured.error(call("refund").idempotent_provider().run(&gossip, &1).await);
    }
    *gossip.is_away.lock().unwrap() = false;
    call("refund").idempotent_provider().run(&gossip, &1).await.unwrap();
    store.fail(StoreCall::Commit, 1, Failure::Rejected);
    captured.error(call("third").run(&gossip, &1).await);
    stage.clock.advance_ms(60_000);
    captured.error(call("charge").run(&gossip, &1).await);
    let charge = async |context: RequestContext| {
        context.effect("bank").name("charge").run(&gossip, &1).await
    };
    let failed = captured.error(engine.admit(&scope(), KEY, &1, charge).await);
    assert!(matches!(failed, AdmitError::Failed(EffectError::Ambiguous { .. })));
    assert!(gossip.ids.lock().unwrap().iter().any(|id| id.len() == 64), "one id was derived");
    check_no_secret(&captured, &gossip);
}

/// Commands are logged when deciding them fails; sometimes their rows are too.
#[tokio::test]
async fn commands_and_rows_do_not_disclose_the_key() {
    let captured = CapturedText::default();
    let (_stage, engine, _store) = stage().await;
    let (tenant, key) = (Tenant::default(), IdempotencyKey::from(KEY));
    let request = RequestKey {
        tenant: tenant.clone(),
        principal: "ada".into(),
        account: String::new(),
        key: key.clone(),
    };
    let owner = "other-owner".to_owned();
    let effect_owner = EffectOwner::Request { request: request.clone(), owner: owner.clone() };
    let (provider, name) = ("bank".to_owned(), "charge".to_owned());
    let fingerprint = fingerprint("pay", b"1", IGNORED_FIELDS);
    let rate = Rate { limit: 3, window_ms: 60_000 };
    let charges = vec![Charge { limiter: "api".into(), units: 1, rate }];
    let commands: Vec<Command> = vec![
        Admit {
            request: request.clone(),
            fingerprint,
            owner: owner.clone(),
            ttls: RequestTtls::default(),
            rate_limit: Some(rate),
        }
        .into(),
        ClaimEffect {
            owner: effect_owner.clone(),
            provider: provider.clone(),
            name: name.clone(),
            fingerprint,
            request_id: key.clone(),
        }
        .into(),
        SettleEffect { owner: effect_owner, provider, name, result: Payload::json("1") }.into(),
        CompleteRequest {
            request: request.clone(),
            owner: owner.clone(),
            response: Payload::json("1"),
        }
        .into(),
        ReleaseRequest { request, owner }.into(),
        Spend { tenant: tenant.clone(), key: key.clone(), charges }.into(),
        Create::one(NewTask {
            idempotency: Some(IdempotencyWindow { key: key.clone(), window_ms: 60_000 }),
            ..NewTask::new("t", "k")
        })
        .into(),
    ];
    for command in commands {
        captured.append(format!("{command:?} {command:#?}"));
        let result: Result<Outcome, _> = engine.submit(command).await;
        captured.append(format!("{result:?}"));
    }
    captured.append(format!("{:?}", Admission::key_of(&tenant, "create", &key)));
    tokio::time::timeout(Duration::from_secs(5), engine.shutdown()).await.unwrap().unwrap();
    check_no_secret(&captured, &Gossip::default());
}
