//! Commands about idempotent requests, effects and rate limits.

use windlass_core::command::{
    Admit, Charge, ClaimEffect, CompleteRequest, ReleaseRequest, SettleEffect, Spend,
};
use windlass_core::{
    Command, Digest, EffectOwner, Payload, Rate, RequestKey, RequestTtls, fingerprint,
};

use super::commands::{BAD, text};
use super::live::{Live, TENANTS};
use crate::random::Random;

const KEYS: &[&str] = &["key-1", "key-2", "k\u{e9}y"];
const OWNERS: &[&str] = &["o1", "o2"];
const PROVIDERS: &[&str] = &["bank", "m\u{e4}il"];
const CALLS: &[&str] = &["charge", "n"];

fn request(random: &mut Random) -> RequestKey {
    RequestKey {
        tenant: random.pick(TENANTS).to_owned().into(),
        principal: if random.percent(BAD) { String::new() } else { text(random, &["p", "p/%"]) },
        account: text(random, &["", "a"]),
        key: text(random, KEYS).into(),
    }
}

/// A request and its owner, preferably in flight.
fn held(random: &mut Random, live: &Live) -> (RequestKey, String) {
    match live.in_flight(random) {
        Some((request, owner)) if random.percent(80) => {
            let owner = if random.percent(90) { owner } else { text(random, OWNERS) };
            (request, owner)
        }
        _ => (request(random), text(random, OWNERS)),
    }
}

fn asks(random: &mut Random) -> Digest {
    let body = if random.percent(15) { &b"2"[..] } else { &b"1"[..] };
    fingerprint("pay", body, &[])
}

pub(super) fn admit(random: &mut Random, live: &Live) -> Command {
    let ttls = RequestTtls {
        replay_ms: 7 * 86_400_000,
        in_flight_ms: *random.pick(&[1_000, 3_000_000, 7 * 86_400_000]),
        tombstone_ms: *random.pick(&[0, 30 * 86_400_000]),
        retry_after_ms: 1_000,
    };
    let rate_limit = random.percent(40).then_some(Rate { limit: 1, window_ms: 86_400_000 });
    let request = if random.percent(50) { held(random, live).0 } else { request(random) };
    let (fingerprint, owner) = (asks(random), text(random, OWNERS));
    Admit { request, fingerprint, owner, ttls, rate_limit }.into()
}

pub(super) fn complete_request(random: &mut Random, live: &Live) -> Command {
    let (request, owner) = held(random, live);
    let response = Payload::json(text(random, &["1", "1", "\"\u{1f4b6}\""]));
    CompleteRequest { request, owner, response }.into()
}

pub(super) fn release_request(random: &mut Random, live: &Live) -> Command {
    let (request, owner) = held(random, live);
    ReleaseRequest { request, owner }.into()
}

fn effect_owner(random: &mut Random, live: &Live) -> EffectOwner {
    if random.percent(40) {
        return EffectOwner::Task(live.running(random));
    }
    let (request, owner) = held(random, live);
    EffectOwner::Request { request, owner }
}

/// A provider and a name, mostly the same.
fn call(random: &mut Random) -> (String, String) {
    match random.below(100) {
        0..BAD => (text(random, PROVIDERS), String::new()),
        BAD..80 => (PROVIDERS[0].to_owned(), CALLS[0].to_owned()),
        _ => (text(random, PROVIDERS), text(random, CALLS)),
    }
}

pub(super) fn claim_effect(random: &mut Random, live: &Live) -> Command {
    let (provider, name) = call(random);
    ClaimEffect {
        owner: effect_owner(random, live),
        provider,
        name,
        fingerprint: asks(random),
        request_id: text(random, &["r1", "r2", "r3"]).into(),
    }
    .into()
}

pub(super) fn settle_effect(random: &mut Random, live: &Live) -> Command {
    let (provider, name) = call(random);
    let result = Payload::json(text(random, &["1", "2"]));
    SettleEffect { owner: effect_owner(random, live), provider, name, result }.into()
}

pub(super) fn spend(random: &mut Random, _: &Live) -> Command {
    let charge = |limiter: &str, units| Charge {
        limiter: limiter.to_owned(),
        units,
        rate: Rate { limit: 3, window_ms: 60_000 },
    };
    let units = if random.percent(BAD) { 0 } else { 1 + u32::from(random.percent(30)) };
    let mut charges = vec![charge("api", units)];
    if random.percent(30) {
        charges.push(charge("m\u{e4}il", 1));
    }
    let tenant = random.pick(TENANTS).to_owned().into();
    Spend { tenant, key: text(random, &["k1", "k2", "k3", "k4"]).into(), charges }.into()
}
