//! Requests, effects and limiters in scripts: the commands, and the handlers of requests.

use std::time::Duration;

use windlass_core::command::{
    Admit, Charge, ClaimEffect, CompleteRequest, ReleaseRequest, RotateSigningKey, SettleEffect,
    Spend,
};
use windlass_core::{
    Command, Digest, EffectOwner, IGNORED_FIELDS, Payload, Rate, Rejection, RequestKey,
    RequestTtls, Secret, Tenant, fingerprint,
};
use windlass_engine::{
    AdmitError, Engine, Error, OnInFlight, RequestContext, RequestPolicy, RequestScope,
};

use crate::bank::BankClient;
use crate::client::{Client, Place};
use crate::coverage::CoverageEvent;
use crate::model::{AdmitRequest, Parent, Responder, Right, Since};
use crate::script::Operation;
use crate::violation::{Kind, breach};
use crate::watch::Watch;

/// The retention of requests: as short as allowed.
pub(crate) const TERMS: RequestTtls = RequestTtls {
    replay_ms: 3_600_000,
    in_flight_ms: 2_000,
    tombstone_ms: 1_800_000,
    retry_after_ms: 1_000,
};

/// The rate limit for requests of one principal.
pub(crate) const GROWTH: Rate = Rate { limit: 2, window_ms: 1_600 };

const KEYS: [&str; 6] = [
    "request-number-0",
    "request-number-1",
    "request-number-2",
    "request-number-3",
    "request-number-4",
    "request-number-5",
];
const PRINCIPALS: [&str; 2] = ["ada", "bob"];
const OPERATION: &str = "pay";
const BODIES: [&str; 2] = ["\"ten\"", "\"eleven\""];
const LIMITERS: [(&str, Rate); 2] = [
    ("calls", Rate { limit: 3, window_ms: 3_200 }),
    ("bytes", Rate { limit: 5, window_ms: 6_400 }),
];

/// The provider of tasks. The provider of a request follows from its key.
const PROVIDER: &str = "bank";

/// The names of effects.
const CALLS: [&str; 2] = ["charge", "refund"];

/// The owner of a call: the lease or the admission of `n` ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Lease(u8),
    Request(u8),
}

/// The behaviour of a request's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// The delay before it does anything.
    pub before_ms: u64,
    /// The call it makes, if any, and whether with an idempotent provider.
    pub call: Option<(u8, bool)>,
    /// The delay after the call.
    pub after_ms: u64,
    pub fails: bool,
}

/// A request as it is sent: identical when it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    key: usize,
    body: &'static str,
    handling: Handling,
}

pub(crate) fn policy(node: usize) -> RequestPolicy {
    let wait = OnInFlight::Wait(Duration::from_millis(1_500));
    let on_in_flight = if node.is_multiple_of(2) { wait } else { OnInFlight::Reject };
    RequestPolicy {
        ttls: TERMS,
        on_in_flight,
        rate_limit: Some(GROWTH),
        ..RequestPolicy::default()
    }
}

/// Whether the owner name was given by a client. Those of handlers are random.
pub(crate) fn is_named(owner: &str) -> bool {
    owner.starts_with("client-")
}

fn principal(key: usize) -> &'static str {
    PRINCIPALS[key % PRINCIPALS.len()]
}

/// The rate limiter that counts a key's requests.
pub(crate) fn limiter_of(key: &str) -> String {
    let number = KEYS.iter().position(|known| *known == key);
    number.map_or_else(String::new, |number| format!("requests/{}", principal(number)))
}

fn request(tenant: Tenant, key: usize) -> RequestKey {
    let (principal, key) = (principal(key).to_owned(), KEYS[key].into());
    RequestKey { tenant, principal, account: String::new(), key }
}

/// The key of the request that is counted under this name.
pub(crate) fn counted_as(name: &str) -> Option<&'static str> {
    let number = (0..KEYS.len())
        .find(|number| request(Tenant::default(), *number).digest().to_string() == name)?;
    Some(KEYS[number])
}

pub(crate) fn rate_of(limiter: &str) -> Option<Rate> {
    LIMITERS.iter().find(|(name, _)| *name == limiter).map(|(_, rate)| *rate)
}

fn provider_of(key: usize) -> String {
    format!("{PROVIDER}-{key}")
}

/// The key of the request that calls a provider.
pub(crate) fn key_of_provider(provider: &str) -> Option<String> {
    let number = (0..KEYS.len()).find(|number| provider_of(*number) == provider)?;
    Some(KEYS[number].to_owned())
}

fn asks(body: &str) -> Digest {
    fingerprint(OPERATION, body.as_bytes(), IGNORED_FIELDS)
}

fn pick<T: Copy, const N: usize>(from: [T; N], number: u8) -> T {
    from[usize::from(number) % N]
}

/// The request that these operations send; none if they are commands.
pub(crate) fn sent(operations: &[Operation]) -> Option<Sent> {
    match operations {
        [Operation::Send { key, variant, behavior }] => {
            let (key, body) = (usize::from(*key) % KEYS.len(), pick(BODIES, *variant));
            Some(Sent { key, body, handling: *behavior })
        }
        _ => None,
    }
}

impl Client<'_> {
    pub(crate) fn of_requests(&self, operation: &Operation) -> Option<Command> {
        let tenant = Tenant::default();
        Some(match *operation {
            Operation::Admit { key, variant } => {
                let (key, owner) = (usize::from(key) % KEYS.len(), self.name.clone());
                let request = request(tenant, key);
                let (fingerprint, rate_limit) = (asks(pick(BODIES, variant)), Some(GROWTH));
                Admit { request, fingerprint, owner, ttls: TERMS, rate_limit }.into()
            }
            Operation::CompleteRequest { back, says } => {
                let (request, owner) = self.owned_request(back)?;
                let response = Payload::json(format!("\"{owner} says {says}\""));
                CompleteRequest { request, owner, response }.into()
            }
            Operation::ReleaseRequest { back } => {
                let (request, owner) = self.owned_request(back)?;
                ReleaseRequest { request, owner }.into()
            }
            Operation::ClaimEffect { by, name, variant } => {
                let (owner, provider) = self.effect_owner(by)?;
                let (name, request_id) = (pick(CALLS, name).to_owned(), self.name.clone());
                let fingerprint = fingerprint(&name, pick(BODIES, variant).as_bytes(), &[]);
                let request_id = request_id.into();
                ClaimEffect { owner, provider, name, fingerprint, request_id }.into()
            }
            Operation::SettleEffect { by, name, says } => {
                let (owner, provider) = self.effect_owner(by)?;
                let (name, result) =
                    (pick(CALLS, name).to_owned(), Payload::json(says.to_string()));
                SettleEffect { owner, provider, name, result }.into()
            }
            Operation::Spend { key, limiter, units, both } => {
                let key = format!("spend-{}", key % 3).into();
                let mut charges = Vec::new();
                let first = usize::from(limiter) % LIMITERS.len();
                for number in if both { vec![first, 1 - first] } else { vec![first] } {
                    let (limiter, rate) = LIMITERS[number];
                    charges.push(Charge { limiter: limiter.to_owned(), units, rate });
                }
                Spend { tenant, key, charges }.into()
            }
            _ => return None,
        })
    }

    fn effect_owner(&self, by: Holder) -> Option<(EffectOwner, String)> {
        match by {
            Holder::Lease(back) => {
                Some((EffectOwner::Task(self.fence(back)?), PROVIDER.to_owned()))
            }
            Holder::Request(back) => {
                let (request, owner) = self.owned_request(back)?;
                let key = KEYS.iter().position(|key| *key == request.key.expose_secret())?;
                Some((EffectOwner::Request { request, owner }, provider_of(key)))
            }
        }
    }
}

/// Ensures a signing key to derive others from. It is always the same.
pub(crate) async fn seed_key(engine: &Engine) -> Result<(), Error> {
    let (tenant, id, secret) = (Tenant::default(), "seed".to_owned(), Secret::new("a5".repeat(32)));
    engine
        .submit(RotateSigningKey { tenant, id, secret, grace_ms: 60_000, if_absent: true })
        .await
        .map(drop)
}

/// Makes the call of a task.
pub(crate) async fn call_for_task(
    context: &windlass_worker::Context,
    watch: &Watch,
    name: u8,
    idempotent_provider: bool,
) -> Result<(), String> {
    let name = pick(CALLS, name);
    let call = (Parent::Task(context.id().clone()), name.to_owned());
    let right = Right::Epoch(context.fence().epoch);
    let client = BankClient::new(watch, call, right, idempotent_provider);
    let mut effect = context.effect(PROVIDER).name(name);
    if idempotent_provider {
        seed_key(context.engine()).await.map_err(|error| error.code().to_owned())?;
        effect = effect.idempotent_provider();
    }
    client.run(effect).await
}

/// The handler of a request; releases it on drop.
struct Handler {
    watch: Watch,
    key: &'static str,
    responder: Option<Responder>,
    /// The number of commits when it began.
    moment: u64,
    is_over: bool,
}

impl Drop for Handler {
    fn drop(&mut self) {
        if !self.is_over {
            self.watch.see().model.release_submitted(self.key, self.responder.take());
        }
    }
}

/// Sends a request, and shows the result to the model.
pub(crate) async fn send(engine: Engine, sent: Sent, place: Place, watch: Watch) {
    let Sent { key, body, .. } = sent;
    let (fingerprint, name) = (asks(body), KEYS[key]);
    let since = {
        let mut seen = watch.see();
        seen.note(format_args!("ask {} of node {}: {sent:?}", place.call, place.node));
        seen.model.admission_requested(name, None, fingerprint);
        seen.model.since(&place.workflow_worker())
    };
    let begin = |responder, moment| {
        let (watch, key) = (watch.clone(), name);
        Handler { watch, key, responder, moment, is_over: false }
    };
    let mut whole = begin(None, since.moment);
    let admit = admit_request(name, fingerprint, since);
    let mut handler = None;
    let scope = RequestScope::new(principal(key), OPERATION);
    let request: serde_json::Value = serde_json::from_str(body).expect("the body is JSON");
    let answer = engine
        .admit(&scope, name, &request, |context| {
            whole.is_over = true;
            let moment = watch.see().model.since(&place.workflow_worker()).moment;
            handler = Some(begin(Some(Responder::Until(context.until())), moment));
            handle((engine.clone(), context), sent, place, watch.clone(), admit.clone())
        })
        .await;
    whole.is_over = true;
    if let Some(handler) = &mut handler {
        handler.is_over = answer.is_ok();
    }
    judge(&watch, place, &admit, handler.as_ref(), answer);
}

fn admit_request(key: &'static str, fingerprint: Digest, since: Since) -> AdmitRequest<'static> {
    AdmitRequest { key, fingerprint, owner: None, moment: since.moment, at: since.at }
}

/// Handles the request. A failed one is released.
async fn handle(
    own: (Engine, RequestContext),
    sent: Sent,
    place: Place,
    watch: Watch,
    admit: AdmitRequest<'static>,
) -> Result<String, String> {
    let until = own.1.until();
    let handled = act(own, sent, place, &watch, admit).await;
    if handled.is_err() {
        watch.see().model.release_submitted(KEYS[sent.key], Some(Responder::Until(until)));
    }
    handled
}

async fn act(
    (engine, context): (Engine, RequestContext),
    sent: Sent,
    place: Place,
    watch: &Watch,
    admit: AdmitRequest<'static>,
) -> Result<String, String> {
    let Sent { key, handling, .. } = sent;
    let until = context.until();
    let recovered = {
        let mut seen = watch.see();
        seen.note(format_args!("call {} handles {}", place.call, KEYS[key]));
        let judged = seen.model.handles(&admit, until);
        seen.judge(judged);
        seen.recovered
    };
    tokio::time::sleep(Duration::from_millis(handling.before_ms)).await;
    if let Some((name, idempotent_provider)) = handling.call {
        let name = pick(CALLS, name);
        let call = (Parent::Request(KEYS[key].to_owned()), name.to_owned());
        let client = BankClient::new(watch, call, Right::Until(until), idempotent_provider);
        let mut effect = context.effect(provider_of(key)).name(name);
        if idempotent_provider {
            seed_key(&engine).await.map_err(|error| error.code().to_owned())?;
            effect = effect.idempotent_provider();
        }
        client.run(effect).await?;
    }
    tokio::time::sleep(Duration::from_millis(handling.after_ms)).await;
    if handling.fails && !recovered {
        return Err("transient failure".to_owned());
    }
    let text = format!("answer of call {}", place.call);
    let responder = Responder::Until(until);
    watch.see().model.response_submitted(KEYS[key], responder, &format!("\"{text}\""));
    Ok(text)
}

type AdmitResult = Result<windlass_engine::AdmittedResponse<String>, AdmitError<String>>;

fn judge(
    watch: &Watch,
    place: Place,
    admit: &AdmitRequest<'_>,
    handler: Option<&Handler>,
    result: AdmitResult,
) {
    let mut seen = watch.see();
    let call = place.call;
    let code = match &result {
        Ok(admitted) if admitted.replayed => "replayed",
        Ok(_) => "first",
        Err(AdmitError::Failed(_)) => "failed",
        Err(AdmitError::Engine(error)) => error.code(),
    };
    seen.note(format_args!("answer {call}, Send: {code}"));
    if seen.breach().is_some() {
        return;
    }
    seen.coverage.sent(code);
    let judged = match result {
        Ok(admitted) => {
            let text = format!("\"{}\"", admitted.response);
            let own = format!("\"answer of call {call}\"");
            if admitted.replayed && seen.model.was_open(admit) {
                seen.count(CoverageEvent::WaitedForAnswer);
            }
            let judged = seen.model.check_response(admit, &text);
            match admitted.replayed || text == own {
                true => judged,
                false => breach(Kind::Request, format!("call {call} did not produce {text}")),
            }
        }
        Err(AdmitError::Engine(Error::Rejected(rejection))) => {
            let just = match (&rejection, handler) {
                (
                    Rejection::RequestLost,
                    Some(Handler { responder: Some(responder), moment, .. }),
                ) => seen.model.may_be_released(admit.key, *moment, responder),
                _ => seen.model.may_reject_admit(admit, &rejection),
            };
            let what = format!("call {call} was rejected: {rejection:?}");
            if just { Ok(()) } else { breach(Kind::UnjustRejection, what) }
        }
        Err(AdmitError::Engine(Error::Bug { command })) => {
            breach(Kind::Engine, format!("a bug in {command}"))
        }
        Err(_) => Ok(()),
    };
    seen.judge(judged);
    seen.count_met();
}
