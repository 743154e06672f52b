//! Commands about messages to workflows, and about leases with messages in flight.

use windlass_core::command::{
    AbandonTurn, Absent, DropActivity, NewTask, NewWorkflow, OutgoingMessage, RenewSessions, Send,
    Start,
};
use windlass_core::{Command, Tenant};

use super::commands::{BAD, payload, text};
use super::live::{IDS, Live, TENANTS};
use super::mail::suspended;
use super::workers::WORKERS;
use crate::random::Random;

fn absent(random: &mut Random, live: &Live) -> Absent {
    match random.below(4) {
        0 => Absent::Refuse,
        1 => Absent::Keep { ms: *random.pick(&[1_000, 60_000]) },
        _ => {
            let (_, lane) = live.lane(random);
            let workflow = Some(NewWorkflow::default());
            Absent::Create(Box::new(NewTask { lane, workflow, ..NewTask::new("any", "flow") }))
        }
    }
}

pub(super) fn send(random: &mut Random, live: &Live) -> Command {
    let (tenant, task) = match random.below(3) {
        0 => {
            let known = live.key(random, suspended);
            (known.tenant, known.id)
        }
        _ => (Tenant::new(*random.pick(TENANTS)), text(random, IDS).into()),
    };
    let name = if random.percent(BAD) { String::new() } else { text(random, &["go", "more"]) };
    let visible = match random.below(4) {
        0 => Start::After { ms: *random.pick(&[700, 60_000]) },
        _ => Start::Now,
    };
    let (payload, absent) = (payload(random), absent(random, live));
    let message = OutgoingMessage { task, name, source: "ops".into(), payload, visible, absent };
    Send { tenant, message }.into()
}

pub(super) fn decline(random: &mut Random, live: &Live) -> Command {
    let delay_ms = *random.pick(&[0, 0, 700]);
    AbandonTurn { fence: live.fence(random), delay_ms, counts: random.percent(70) }.into()
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
