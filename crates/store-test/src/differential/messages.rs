//! Commands about messages to workflows, and about leases with messages in flight.

use windlass_core::command::{
    AbandonTurn, Delay, DropActivity, MailboxLimit, NewMessage, RenewSessions, SendMessages,
};
use windlass_core::{Command, Tenant};

use super::commands::{BAD, payload, text};
use super::live::{IDS, Live, TENANTS};
use super::mailboxes::{if_absent, suspended};
use super::workers::WORKERS;
use crate::random::Random;

/// With the limits of an external runtime.
pub(super) fn send_extended(random: &mut Random, live: &Live) -> Command {
    let (tenant, task) = match random.below(3) {
        0 => {
            let known = live.key(random, suspended);
            (known.tenant, known.id)
        }
        _ => (Tenant::new(*random.pick(TENANTS)), text(random, IDS).into()),
    };
    let name = if random.percent(BAD) { String::new() } else { text(random, &["go", "more"]) };
    let delay = match random.below(4) {
        0 => Delay::For { ms: *random.pick(&[700, 60_000]) },
        _ => Delay::None,
    };
    let message = NewMessage {
        delay,
        if_absent: if_absent(random, live),
        limit: MailboxLimit::Extended,
        payload: payload(random),
        ..NewMessage::new(task, name, "ops")
    };
    SendMessages { tenant, messages: vec![message] }.into()
}

pub(super) fn abandon_turn(random: &mut Random, live: &Live) -> Command {
    let delay_ms = *random.pick(&[0, 0, 700]);
    AbandonTurn { fence: live.fence(random), delay_ms, count_delivery: random.percent(70) }.into()
}

pub(super) fn discard(random: &mut Random, live: &Live) -> Command {
    DropActivity { fence: live.fence(random), reason: text(random, &["", "no use"]) }.into()
}

pub(super) fn renew_sessions(random: &mut Random, _: &Live) -> Command {
    let workers = WORKERS.iter().map(|worker| (*worker).into()).collect();
    let lock_ms = if random.percent(BAD) { 0 } else { 5_000 };
    let tenant = Tenant::new(*random.pick(TENANTS));
    RenewSessions { tenant, workers, lock_ms, idle_ms: *random.pick(&[100, 60_000]) }.into()
}
