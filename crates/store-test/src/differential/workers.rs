//! Commands about worker records, grants and durable subscriptions.

use windlass_core::command::{
    ClaimGranted, Create, DeleteSubscription, DeregisterWorker, Grant, LimitLane,
    MoveSubscriptionCursor, NewTask, RegisterWorker, Revoke, SetLaneState,
};
use windlass_core::{
    Command, Cursor, HeldLeases, LaneName, LaneState, LeaseRequest, Lifecycle, Task, TaskKey,
    Tenant, WorkerId,
};

use super::commands::{BAD, capabilities, open, reason, text};
use super::live::{LANES, Live, TENANTS};
use crate::random::Random;

pub(super) const WORKERS: &[&str] = &["w1", "w\u{f6}rker"];

pub(super) fn command(random: &mut Random, live: &Live) -> Command {
    match random.below(14) {
        0..3 => register(random, live),
        3 => deregister(random),
        4..7 => grant(random, live),
        7..10 => claim_granted(random, live),
        10 | 11 => Revoke { task: live.key(random, open), reason: reason(random) }.into(),
        12 => move_bookmark(random),
        _ => drop_bookmark(random),
    }
}

fn worker(random: &mut Random) -> WorkerId {
    if random.percent(BAD) { "".into() } else { (*random.pick(WORKERS)).into() }
}

/// The holder of a lease that a heartbeat may report as not held.
fn holder(task: &Task) -> Option<WorkerId> {
    let Lifecycle::Active(lease) = &task.lifecycle else { return None };
    (lease.registered && lease.request.is_some()).then(|| lease.worker.clone())
}

fn register(random: &mut Random, live: &Live) -> Command {
    let found = live.task(random, |task| holder(task).is_some()).filter(|_| random.percent(60));
    let tenant = Tenant::new(*random.pick(TENANTS));
    let lanes = LANES.iter().filter(|_| random.percent(50)).map(|lane| LaneName::new(*lane));
    let lanes = lanes.collect();
    let (id, capabilities) = (worker(random), capabilities(random));
    let heartbeat_interval_ms = *random.pick(&[10, 5_000, 60_000]);
    let held = HeldLeases { responded_below: random.below(2), ..HeldLeases::default() };
    let held = random.percent(40).then_some(held);
    let (tenant, id) = match found.map(|task| (task.tenant.clone(), holder(task))) {
        Some((tenant, Some(id))) => (tenant, id),
        _ => (tenant, id),
    };
    RegisterWorker { tenant, id, lanes, capabilities, heartbeat_interval_ms, held }.into()
}

fn deregister(random: &mut Random) -> Command {
    DeregisterWorker { tenant: Tenant::new(*random.pick(TENANTS)), id: worker(random) }.into()
}

fn waits(task: &Task) -> bool {
    task.lifecycle.readiness().is_some()
}

fn is_granted(task: &Task) -> bool {
    matches!(task.lifecycle, Lifecycle::Granted { .. })
}

fn grant(random: &mut Random, live: &Live) -> Command {
    let ttl_ms = if random.percent(BAD) { 99 } else { *random.pick(&[100, 5_000, 3_600_000]) };
    let task = live.key(random, waits);
    Grant { task, worker: worker(random), ttl_ms }.into()
}

fn claim_granted(random: &mut Random, live: &Live) -> Command {
    let found = live.task(random, is_granted).filter(|_| random.percent(90));
    let task = found.map_or_else(|| live.key(random, is_granted), |task| task.task_key());
    let worker = match found.map(|task| &task.lifecycle) {
        Some(Lifecycle::Granted { worker, .. }) if random.percent(80) => worker.clone(),
        _ => worker(random),
    };
    let lease_ms = if random.percent(3 * BAD) { 99 } else { *random.pick(&[100, 2_500, 30_000]) };
    let (begin, registered) = (random.percent(65), random.percent(50));
    let request = random.percent(50).then_some(LeaseRequest { instance: 0, number: 0 });
    ClaimGranted { task, worker, lease_ms, begin, registered, request }.into()
}

fn subscriber(random: &mut Random) -> String {
    if random.percent(4 * BAD) { String::new() } else { text(random, &["mailer", "\u{e4}udit"]) }
}

fn move_bookmark(random: &mut Random) -> Command {
    let incarnation = text(random, &["one", "one", "one", "two"]);
    let cursor = Cursor { incarnation, seq: random.below(20) };
    let tenant = Tenant::new(*random.pick(TENANTS));
    MoveSubscriptionCursor { tenant, name: subscriber(random), cursor }.into()
}

fn drop_bookmark(random: &mut Random) -> Command {
    DeleteSubscription { tenant: Tenant::new(*random.pick(TENANTS)), name: subscriber(random) }
        .into()
}

/// Grants a task and then pauses its lane, or fills the lane with another granted task, before the
/// worker claims it.
pub(super) fn unclaimable_grant(random: &mut Random, task: &Task) -> Vec<Command> {
    let (tenant, lane) = (task.tenant.clone(), task.lane.clone());
    let (worker, lease_ms) = (worker(random), *random.pick(&[2_500, 2_500, 2_500, 99]));
    let grant =
        |task: &TaskKey| Grant { task: task.clone(), worker: worker.clone(), ttl_ms: 60_000 };
    let consume = |task: &TaskKey| ClaimGranted {
        task: task.clone(),
        worker: worker.clone(),
        lease_ms,
        begin: true,
        registered: true,
        request: None,
    };
    let key = task.task_key();
    if random.percent(50) {
        let state = *random.pick(&[LaneState::Paused, LaneState::Disabled]);
        let shut = SetLaneState { tenant, lane, state };
        return vec![grant(&key).into(), shut.into(), consume(&key).into()];
    }
    let filler = NewTask { lane: lane.clone(), ..NewTask::new("filler", "k") };
    let create = Create { tenant: tenant.clone(), tasks: vec![filler] };
    let other = TaskKey { tenant: tenant.clone(), id: "filler".into() };
    vec![
        LimitLane { tenant, lane, limit: Some(1) }.into(),
        create.into(),
        grant(&other).into(),
        grant(&key).into(),
        consume(&other).into(),
        consume(&key).into(),
    ]
}
