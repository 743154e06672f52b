//! Commands about messages, waitpoints and suspensions.

use windlass_core::command::{
    CompleteWaitpoint, ConsumeMessages, CreateWaitpoint, Delay, IdempotencyWindow, IfAbsent,
    NewMessage, NewTask, NewWaitpoint, NewWorkflow, Resume, RotateSigningKey, SendMessages,
    Suspend, SuspendTimeout,
};
use windlass_core::{
    Command, Condition, Distinct, Lifecycle, Matcher, OnTimeout, Secret, SuspendReason, Task,
    TaskKey, Tenant, Token,
};

use super::commands::{BAD, open, payload, text};
use super::live::{IDS, Live, TENANTS};
use crate::random::Random;

const NAMES: &[&str] = &["go", "go", "more", "n\u{e4}me"];
const SOURCES: &[&str] = &["ops", "ada", "s\u{f6}urce"];
const WAITPOINTS: &[&str] = &["p", "q", "r", "s", "t", "u", "v", "w"];

pub(super) fn suspended(task: &Task) -> bool {
    matches!(task.lifecycle, Lifecycle::Suspended(_))
}

fn idempotency(random: &mut Random) -> Option<IdempotencyWindow> {
    let window_ms = *random.pick(&[1_000, 86_400_000]);
    random
        .percent(25)
        .then(|| IdempotencyWindow { key: text(random, &["k1", "k2"]).into(), window_ms })
}

pub(super) fn if_absent(random: &mut Random, live: &Live) -> IfAbsent {
    match random.below(10) {
        0..2 => IfAbsent::Buffer { ttl_ms: *random.pick(&[1_000, 60_000]) },
        2..4 => {
            let (_, lane) = live.lane(random);
            let workflow = Some(NewWorkflow::default());
            IfAbsent::Start(Box::new(NewTask { lane, workflow, ..NewTask::new("any", "flow") }))
        }
        _ => IfAbsent::Reject,
    }
}

fn message(random: &mut Random, live: &Live, task: &TaskKey) -> NewMessage {
    let name = if random.percent(BAD) { String::new() } else { text(random, NAMES) };
    NewMessage {
        idempotency: idempotency(random),
        delay: Delay::For { ms: *random.pick(&[0, 0, 0, 700, 60_000]) },
        if_absent: if_absent(random, live),
        payload: payload(random),
        ..NewMessage::new(task.id.clone(), name, text(random, SOURCES))
    }
}

pub(super) fn send_messages(random: &mut Random, live: &Live) -> Command {
    let task = match random.below(10) {
        0 => TaskKey::new(&Tenant::default(), &text(random, IDS).into()),
        1..4 => live.key(random, open),
        _ => live.key(random, suspended),
    };
    let count = if random.percent(15) { 2 + random.below(4) } else { 1 };
    let messages = (0..count).map(|_| message(random, live, &task)).collect();
    SendMessages { tenant: task.tenant, messages }.into()
}

/// Uses an issued token, sometimes a tampered one.
pub(super) fn complete_waitpoint(random: &mut Random, live: &Live) -> Command {
    let token = match live.tokens.last() {
        None => Token::new("wl1.k1.p.1.00"),
        Some(last) if random.percent(50) => last.clone(),
        Some(_) => random.pick(&live.tokens).clone(),
    };
    let token = if random.percent(BAD * 2) {
        Token::new(token.expose_secret().replace("0", "1"))
    } else {
        token
    };
    CompleteWaitpoint {
        tenant: if random.percent(BAD) { "acme".into() } else { Tenant::default() },
        token,
        name: text(random, NAMES),
        source: text(random, SOURCES),
        idempotency: idempotency(random),
        payload: payload(random),
    }
    .into()
}

fn new_waitpoint(random: &mut Random) -> NewWaitpoint {
    let id = if random.percent(BAD) { "no.dots" } else { *random.pick(WAITPOINTS) };
    NewWaitpoint { id: id.into(), ttl_ms: *random.pick(&[1_000, 86_400_000, 86_400_000]) }
}

pub(super) fn create_waitpoint(random: &mut Random, live: &Live) -> Command {
    let waitpoint = new_waitpoint(random);
    if random.percent(60) {
        let fence = live.fence(random);
        return CreateWaitpoint { task: fence.task, epoch: Some(fence.epoch), waitpoint }.into();
    }
    CreateWaitpoint { task: live.key(random, open), epoch: None, waitpoint }.into()
}

fn condition(random: &mut Random, depth: u64) -> Condition {
    let matcher = |random: &mut Random| Matcher {
        waitpoint: random.percent(15).then(|| (*random.pick(WAITPOINTS)).into()),
        name: random.percent(60).then(|| text(random, NAMES)),
        source: random.percent(15).then(|| text(random, SOURCES)),
    };
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 | 1 => Condition::signal("go"),
        2 | 3 => Condition::Signal(matcher(random)),
        4 => Condition::Count {
            n: 1 + u32::from(random.percent(60)),
            distinct: *random.pick(&[Distinct::Names, Distinct::Sources, Distinct::Waitpoints]),
            of: matcher(random),
        },
        5 => random.pick(&[Condition::Operator, Condition::Timeout]).clone(),
        6 | 7 => Condition::All((0..2).map(|_| condition(random, depth - 1)).collect()),
        _ => Condition::Any((0..2).map(|_| condition(random, depth - 1)).collect()),
    }
}

pub(super) fn suspend(random: &mut Random, live: &Live) -> Command {
    let action = *random.pick(&[
        OnTimeout::Fail,
        OnTimeout::Cancel,
        OnTimeout::Expire,
        OnTimeout::Resume,
        OnTimeout::Escalate,
    ]);
    let after_ms = *random.pick(&[1, 900, 30_000]);
    let timeout = random.percent(60).then_some(SuspendTimeout { after_ms, action });
    let made = random.percent(50).then(|| new_waitpoint(random));
    let condition = match &made {
        Some(made) if random.percent(80) => Condition::waitpoint(made.id.clone()),
        _ => condition(random, 2),
    };
    Suspend {
        reason: *random.pick(&[SuspendReason::Signal, SuspendReason::Approval]),
        timeout,
        waitpoints: made.into_iter().collect(),
        nth: u32::from(random.percent(20)),
        ..Suspend::new(live.running(random), condition)
    }
    .into()
}

pub(super) fn resume(random: &mut Random, live: &Live) -> Command {
    let by = if random.percent(BAD) { String::new() } else { "ada".into() };
    Resume { task: live.key(random, suspended), by }.into()
}

pub(super) fn consume_messages(random: &mut Random, live: &Live) -> Command {
    let seqs = (0..random.below(4)).map(|_| 1 + random.below(4)).collect();
    ConsumeMessages { fence: live.fence(random), seqs }.into()
}

pub(super) fn rotate_signing_key(random: &mut Random, _: &Live) -> Command {
    let secret = *random.pick(&["07", "07", "07", "08"]);
    let length = if random.percent(BAD) { 3 } else { 32 };
    RotateSigningKey {
        tenant: Tenant::new(*random.pick(TENANTS)),
        id: text(random, &["k1", "k2", "k3"]),
        secret: Secret::new(secret.repeat(length)),
        grace_ms: *random.pick(&[0, 86_400_000, 86_400_000]),
        if_absent: random.percent(20),
    }
    .into()
}
