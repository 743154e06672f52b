//! Commands about requests that are answered once, calls to others, and limits per time.

use windlass_core::command::{Admit, Answer, Charge, ClaimEffect, SettleEffect, Spend, Withdraw};
use windlass_core::{Caller, Command, Digest, Payload, Rate, RequestKey, Terms, fingerprint};

use super::live::{Live, TENANTS};
use super::wish::{BAD, text};
use crate::random::Random;

const KEYS: &[&str] = &["key-1", "key-2", "k\u{e9}y"];
const OWNERS: &[&str] = &["o1", "o2"];
const PROVIDERS: &[&str] = &["bank", "m\u{e4}il"];

fn request(random: &mut Random) -> RequestKey {
    RequestKey {
        tenant: random.pick(TENANTS).to_owned().into(),
        principal: if random.percent(BAD) { String::new() } else { text(random, &["p", "p/%"]) },
        account: text(random, &["", "a"]),
        key: text(random, KEYS).into(),
    }
}

fn asks(random: &mut Random) -> Digest {
    let body = if random.percent(15) { &b"2"[..] } else { &b"1"[..] };
    fingerprint("pay", body, &[])
}

pub(super) fn admit(random: &mut Random, _: &Live) -> Command {
    let terms = Terms {
        replay_ms: 3_600_000,
        in_flight_ms: *random.pick(&[1_000, 60_000]),
        tombstone_ms: *random.pick(&[0, 600_000]),
        retry_after_ms: 1_000,
    };
    let growth = random.percent(20).then_some(Rate { starts: 2, window_ms: 60_000 });
    let (request, fingerprint) = (request(random), asks(random));
    Admit { request, fingerprint, owner: text(random, OWNERS), terms, growth }.into()
}

pub(super) fn answer(random: &mut Random, _: &Live) -> Command {
    let answer = Payload::json(text(random, &["1", "1", "\"\u{1f4b6}\""]));
    Answer { request: request(random), owner: text(random, OWNERS), answer }.into()
}

pub(super) fn withdraw(random: &mut Random, _: &Live) -> Command {
    Withdraw { request: request(random), owner: text(random, OWNERS) }.into()
}

fn caller(random: &mut Random, live: &Live) -> Caller {
    if random.percent(40) {
        return Caller::Request { request: request(random), owner: text(random, OWNERS) };
    }
    Caller::Task(live.fence(random))
}

pub(super) fn claim_effect(random: &mut Random, live: &Live) -> Command {
    let name = if random.percent(BAD) { String::new() } else { text(random, &["charge", "n"]) };
    ClaimEffect {
        caller: caller(random, live),
        provider: text(random, PROVIDERS),
        name,
        fingerprint: asks(random),
        request_id: text(random, &["r1", "r2", "r3"]),
    }
    .into()
}

pub(super) fn settle_effect(random: &mut Random, live: &Live) -> Command {
    SettleEffect {
        caller: caller(random, live),
        provider: text(random, PROVIDERS),
        name: text(random, &["charge", "n"]),
        answer: Payload::json(text(random, &["1", "2"])),
    }
    .into()
}

pub(super) fn spend(random: &mut Random, _: &Live) -> Command {
    let charge = |limiter: &str, units| Charge {
        limiter: limiter.to_owned(),
        units,
        rate: Rate { starts: 3, window_ms: 5_000 },
    };
    let units = if random.percent(BAD) { 0 } else { 1 + u32::from(random.percent(30)) };
    let mut charges = vec![charge("api", units)];
    if random.percent(30) {
        charges.push(charge("m\u{e4}il", 1));
    }
    let tenant = random.pick(TENANTS).to_owned().into();
    Spend { tenant, key: text(random, &["k1", "k2", "k3", "k4"]).into(), charges }.into()
}
