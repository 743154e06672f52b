//! Valid and invalid commands, generated from the current records.

use std::collections::BTreeSet;

use windlass_core::command::{
    Begin, Cancel, CancelHeld, ChangePriority, Claim, Complete, Create, Delay, DeleteTask,
    DeregisterNode, Fail, HeartbeatNode, IdempotencyWindow, LimitLane, NewTask, QuotaScope,
    Release, ReleaseSession, Renew, Replay, ReportProgress, SetLaneState, SetQuota, Snooze, Sweep,
    TrimLog, WaitChildren,
};
use windlass_core::{
    Backoff, Command, FailureClass, LaneName, LaneState, LeaseRequest, Lifecycle, LimitKey, NodeId,
    Payload, Policy, Rate, Retry, RetryPolicy, SESSIONS, TagFilter, Task, Tenant,
    WorkerCapabilities,
};

use super::live::{IDS, LANES, Live, TENANTS};
use super::workers::{self, WORKERS};
use super::{mailboxes, messages, requests, workflows};
use crate::random::Random;

type Generate = fn(&mut Random, &Live) -> Command;

/// Commands by weight.
const COMMANDS: &[(u64, Generate)] = &[
    (20, create),
    (20, claim),
    (5, renew),
    (3, report_progress),
    (6, begin),
    (9, complete),
    (8, fail),
    (4, delay),
    (4, release),
    (3, cancel_held),
    (4, cancel),
    (4, change_priority),
    (5, replay),
    (4, delete_task),
    (5, set_lane_state),
    (4, limit_lane),
    (12, sweep),
    (3, trim_log),
    (4, beat),
    (2, leave),
    (6, create_child),
    (8, wait_children),
    (5, set_quota),
    (2, release_session),
    (14, workers::command),
    (12, mailboxes::send_messages),
    (9, mailboxes::complete_waitpoint),
    (5, mailboxes::create_waitpoint),
    (16, mailboxes::suspend),
    (3, mailboxes::resume),
    (4, mailboxes::consume_messages),
    (3, mailboxes::rotate_signing_key),
    (8, requests::admit),
    (6, requests::complete_request),
    (3, requests::release_request),
    (8, requests::claim_effect),
    (12, requests::settle_effect),
    (4, requests::spend),
    (6, messages::send_extended),
    (3, messages::abandon_turn),
    (2, messages::discard),
    (2, messages::renew_sessions),
];

/// Percentage of invalid commands.
pub(super) const BAD: u64 = 4;

const KEY_NAMES: &[&str] = &["k1", "k1", "k\u{1f511}"];
const SESSION_NAMES: &[&str] = &["s1", "S1"];

const REASONS: &[&str] = &["", "no", "two\nlines", "\u{1f4a5} \"boom\" \\ '"];

/// Commands by weight, in seeds with workflows.
const OF_WORKFLOWS: &[(u64, Generate)] = &[
    (12, workflows::create),
    (40, workflows::commit_turn),
    (20, workflows::advance),
    (4, workflows::unstick),
    (5, workflows::request_cancel),
    (6, workflows::prune),
    (20, claim),
    (8, sweep),
];

pub(super) fn command(random: &mut Random, live: &Live) -> Command {
    one_of(COMMANDS, random, live)
}

pub(super) fn of_workflows(random: &mut Random, live: &Live) -> Command {
    one_of(OF_WORKFLOWS, random, live)
}

fn one_of(choices: &[(u64, Generate)], random: &mut Random, live: &Live) -> Command {
    let all = choices.iter().map(|(weight, _)| weight).sum();
    let mut left = random.below(all);
    for (weight, generate) in choices {
        match left.checked_sub(*weight) {
            Some(rest) => left = rest,
            None => return generate(random, live),
        }
    }
    unreachable!("the number is below the sum of the weights")
}

pub(super) fn text(random: &mut Random, choices: &[&str]) -> String {
    (*random.pick(choices)).to_owned()
}

pub(super) fn reason(random: &mut Random) -> String {
    if random.percent(BAD) { "a\0b".to_owned() } else { text(random, REASONS) }
}

pub(super) fn payload(random: &mut Random) -> Option<Payload> {
    match random.below(6) {
        0 | 1 => Some(Payload::json(format!("[{}]", random.below(3)))),
        2 => Some(Payload::new("application/octet-stream", vec![0, 255, 10, 39])),
        _ => None,
    }
}

fn words(random: &mut Random, choices: &[&str], percent: u64) -> BTreeSet<String> {
    let words = choices.iter().filter(|_| random.percent(percent));
    words.map(|label| (*label).to_owned()).collect()
}

fn policy(random: &mut Random) -> Policy {
    let attempts = 1 + u32::from(random.percent(60)) + u32::from(random.percent(30));
    let retry = match random.below(4) {
        0 => None,
        1 => Some(RetryPolicy::exponential(attempts)),
        2 => Some(RetryPolicy {
            backoff: Backoff::Fixed { ms: 0 },
            ..RetryPolicy::fixed(attempts, 0)
        }),
        _ => Some(RetryPolicy::fixed(attempts, 1_000)),
    };
    Policy {
        retry,
        attempt_timeout_ms: random.percent(15).then_some(2_000),
        max_lost_leases: *random.pick(&[0, 1, 100]),
        max_replays: *random.pick(&[0, 1, 100]),
        retention_ms: *random.pick(&[0, 5_000, 5_000_000, 600_000_000]),
        accept_expired_lease: random.percent(15),
    }
}

fn new_task(random: &mut Random, live: &Live) -> NewTask {
    let mut task = NewTask::new(*random.pick(IDS), *random.pick(&["email", "r\u{e9}sum\u{e9}"]));
    task.lane = LaneName::new(*random.pick(LANES));
    task.payload = payload(random);
    task.priority = *random.pick(&[0, 0, 0, 1, -1, 5, -1_000_000, 1_000_000]);
    task.delay = match random.below(10) {
        0 | 1 => Delay::For { ms: *random.pick(&[0, 700, 60_000]) },
        2 => Delay::Until { at: live.now.plus_ms(300) },
        3 => Delay::Until { at: live.now.minus_ms(300) },
        _ => Delay::None,
    };
    task.deadline_ms = random.percent(15).then(|| *random.pick(&[1, 2_500, 100_000]));
    if random.percent(10) {
        task.labels.insert("who".into(), text(random, REASONS));
    }
    task.capabilities = words(random, &["gpu", "ssd"], 12);
    task.tag = random.percent(15).then(|| text(random, &["blue", "red"]));
    task.policy = policy(random);
    if random.percent(25) {
        let window_ms = *random.pick(&[1_000, 60_000, 86_400_000]);
        task.idempotency = Some(IdempotencyWindow {
            key: text(random, &["k1", "k2", "k\u{1f511}"]).into(),
            window_ms,
        });
    }
    if random.percent(30) {
        task.limit_key = Some(match random.below(4) {
            0 => LimitKey::Session(text(random, SESSION_NAMES)),
            1 => LimitKey::Affinity(text(random, SESSION_NAMES)),
            _ => LimitKey::Concurrency(text(random, KEY_NAMES)),
        });
    }
    task
}

fn spoil(random: &mut Random, task: &mut NewTask) {
    match random.below(7) {
        5 => task.limit_key = Some(LimitKey::Concurrency("a\0b".into())),
        0 => task.id = "".into(),
        1 => task.kind = "k".repeat(256).into(),
        2 => task.lane = "a\nb".into(),
        3 => task.tag = Some("not a token".into()),
        4 => task.priority = 1_000_001,
        _ => task.policy.max_replays = u32::MAX,
    }
}

/// Children of an existing task, sometimes with a grandchild.
fn create_child(random: &mut Random, live: &Live) -> Command {
    let held = |task: &Task| matches!(task.lifecycle, Lifecycle::Active(_));
    let parent = live.key(random, held);
    let mut child = new_task(random, live);
    child.parent = Some(parent.id);
    let mut tasks = vec![child];
    if random.percent(20) {
        let mut grandchild = new_task(random, live);
        grandchild.parent = Some(tasks[0].id.clone());
        tasks.push(grandchild);
    }
    Create { tenant: parent.tenant, tasks }.into()
}

/// Preferably for a lease holder with children.
fn wait_children(random: &mut Random, live: &Live) -> Command {
    let parent = |task: &Task| task.has_children && matches!(task.lifecycle, Lifecycle::Active(_));
    let fence = match live.task(random, parent).filter(|task| parent(task)) {
        Some(task) => task.fence(),
        None => live.fence(random),
    };
    WaitChildren { fence }.into()
}

fn create(random: &mut Random, live: &Live) -> Command {
    let tenant = Tenant::new(*random.pick(TENANTS));
    let count = if random.percent(15) { 2 + random.below(4) } else { 1 };
    let mut tasks: Vec<NewTask> = (0..count).map(|_| new_task(random, live)).collect();
    if random.percent(BAD) {
        spoil(random, &mut tasks[0]);
    }
    Create { tenant, tasks }.into()
}

/// The same command again; a create sometimes with an additional task.
pub(super) fn again(random: &mut Random, live: &Live, command: Command) -> Command {
    match command {
        Command::Create(mut create) if random.percent(40) => {
            create.tasks.push(new_task(random, live));
            create.into()
        }
        other => other,
    }
}

pub(super) fn capabilities(random: &mut Random) -> WorkerCapabilities {
    let tags = match random.below(8) {
        0 => TagFilter::Only(words(random, &["blue", "red"], 60)),
        1 => TagFilter::UntaggedAnd(words(random, &["blue", "red"], 60)),
        2..=4 => TagFilter::Any,
        5 => TagFilter::None,
        _ => TagFilter::Untagged,
    };
    let mut capabilities = words(random, &["gpu", "ssd", "fpga"], 60);
    if random.percent(50) {
        capabilities.insert(SESSIONS.to_owned());
    }
    WorkerCapabilities { names: capabilities, tags, versions: Vec::new() }
}

fn claim(random: &mut Random, live: &Live) -> Command {
    let (tenant, first) = live.lane(random);
    let mut lanes = vec![first];
    for _ in 0..random.below(6) {
        lanes.push(LaneName::new(*random.pick(LANES)));
    }
    Claim {
        tenant,
        lanes,
        worker: (*random.pick(WORKERS)).into(),
        capabilities: capabilities(random),
        lease_ms: if random.percent(BAD) { 99 } else { *random.pick(&[100, 2_500, 30_000]) },
        limit: u32::from(!random.percent(BAD)) * (1 + u32::from(random.percent(40)) * 3),
        begin: random.percent(65),
        rotation: u32::try_from(random.below(4)).expect("the value is below four"),
        session_idle_ms: *random.pick(&[100, 5_000]),
        registered: random.percent(40),
        request: random.percent(40).then_some(LeaseRequest { instance: 0, number: 0 }),
        grants: random.percent(30),
        deliver_messages: random.percent(30),
    }
    .into()
}

fn renew(random: &mut Random, live: &Live) -> Command {
    let lease_ms = if random.percent(BAD) { 0 } else { *random.pick(&[100, 5_000, 60_000]) };
    Renew { fence: live.fence(random), lease_ms }.into()
}

fn report_progress(random: &mut Random, live: &Live) -> Command {
    let percent = if random.percent(BAD) { 101 } else { *random.pick(&[0, 50, 100]) };
    ReportProgress { fence: live.fence(random), percent, message: reason(random) }.into()
}

fn begin(random: &mut Random, live: &Live) -> Command {
    Begin { fence: live.fence(random) }.into()
}

fn complete(random: &mut Random, live: &Live) -> Command {
    let mut result = payload(random);
    if let Some(result) = result.as_mut().filter(|_| random.percent(BAD * 3)) {
        result.content_type.clear();
    }
    Complete { fence: live.fence(random), result }.into()
}

fn fail(random: &mut Random, live: &Live) -> Command {
    let class = *random.pick(&[
        FailureClass::Transient,
        FailureClass::Transient,
        FailureClass::Permanent,
        FailureClass::Crash,
        FailureClass::Timeout,
        FailureClass::Cancelled,
    ]);
    let retry = match random.below(6) {
        0 => Retry::After { ms: *random.pick(&[0, 900]) },
        1 => Retry::Never,
        _ => Retry::Policy,
    };
    Fail { fence: live.fence(random), class, reason: reason(random), retry }.into()
}

fn delay(random: &mut Random, live: &Live) -> Command {
    let delay_ms = if random.percent(BAD) { u64::MAX } else { *random.pick(&[0, 800, 90_000]) };
    Snooze { fence: live.fence(random), delay_ms }.into()
}

fn release(random: &mut Random, live: &Live) -> Command {
    Release { fence: live.fence(random) }.into()
}

fn cancel_held(random: &mut Random, live: &Live) -> Command {
    CancelHeld { fence: live.fence(random), reason: reason(random) }.into()
}

pub(super) fn open(task: &Task) -> bool {
    task.lifecycle.ended_at().is_none()
}

fn ended(task: &Task) -> bool {
    task.lifecycle.ended_at().is_some()
}

fn cancel(random: &mut Random, live: &Live) -> Command {
    Cancel { task: live.key(random, open), reason: reason(random) }.into()
}

fn change_priority(random: &mut Random, live: &Live) -> Command {
    let bad = random.percent(BAD);
    let priority = if bad { i32::MIN } else { *random.pick(&[-7, 0, 7, 1_000_000]) };
    ChangePriority { task: live.key(random, open), priority }.into()
}

fn replay(random: &mut Random, live: &Live) -> Command {
    let Some(task) = live.task(random, ended).filter(|_| random.percent(95)) else {
        return Replay { task: live.key(random, ended), execution: 0 }.into();
    };
    let execution = match random.below(10) {
        0 => task.execution + 1,
        1 => task.execution.saturating_sub(1),
        _ => task.execution,
    };
    Replay { task: task.task_key(), execution }.into()
}

fn delete_task(random: &mut Random, live: &Live) -> Command {
    DeleteTask { task: live.key(random, ended) }.into()
}

fn set_lane_state(random: &mut Random, live: &Live) -> Command {
    let (tenant, mut lane) = live.lane(random);
    if random.percent(BAD) {
        lane = LaneName::new("");
    }
    let state = *random.pick(&[
        LaneState::Active,
        LaneState::Active,
        LaneState::Active,
        LaneState::Paused,
        LaneState::Draining,
        LaneState::Disabled,
    ]);
    SetLaneState { tenant, lane, state }.into()
}

fn limit_lane(random: &mut Random, live: &Live) -> Command {
    let (tenant, lane) = live.lane(random);
    let limit = match random.below(8) {
        0 => Some(0),
        1 | 2 => None,
        3 | 4 => Some(1),
        _ => Some(3),
    };
    LimitLane { tenant, lane, limit }.into()
}

fn sweep(random: &mut Random, _: &Live) -> Command {
    Sweep { page: *random.pick(&[1, 2, 5, 256, 256, 256, 256, 0]) }.into()
}

fn trim_log(random: &mut Random, _: &Live) -> Command {
    let retention_ms = *random.pick(&[0, 1_000, 600_000, u64::MAX]);
    TrimLog { retention_ms, page: *random.pick(&[0, 1, 10, 1_000]) }.into()
}

fn node(random: &mut Random) -> NodeId {
    if random.percent(BAD * 2) { "".into() } else { (*random.pick(&["n1", "n2", "N2"])).into() }
}

fn beat(random: &mut Random, _: &Live) -> Command {
    HeartbeatNode {
        id: node(random),
        name: text(random, &["host", "h\u{f6}st"]),
        pid: 1,
        version: "1.0.0".into(),
        format: *random.pick(&[1, 2]),
        up_ms: random.below(1_000),
        heartbeat_interval_ms: *random.pick(&[10, 5_000, 60_000]),
    }
    .into()
}

fn leave(random: &mut Random, _: &Live) -> Command {
    DeregisterNode { id: node(random) }.into()
}

fn set_quota(random: &mut Random, live: &Live) -> Command {
    let (tenant, lane) = live.lane(random);
    let scope = match random.below(6) {
        0 => QuotaScope::Tenant,
        1 => QuotaScope::Lane(lane),
        2 => QuotaScope::Session(text(random, SESSION_NAMES)),
        _ => QuotaScope::Concurrency(text(random, KEY_NAMES)),
    };
    let most = if random.percent(BAD) { u32::MAX } else { *random.pick(&[0, 1, 2, 5]) };
    let limit = random.percent(50).then_some(most);
    let rate = Rate { limit: *random.pick(&[1, 3]), window_ms: *random.pick(&[100, 3_000]) };
    let rate = random.percent(40).then_some(rate);
    SetQuota { tenant, scope, limit, rate }.into()
}

fn release_session(random: &mut Random, _: &Live) -> Command {
    let tenant = Tenant::new(*random.pick(TENANTS));
    let bad = random.percent(BAD * 3);
    let session = if bad { String::new() } else { text(random, SESSION_NAMES) };
    ReleaseSession { tenant, session, affinity: random.percent(50) }.into()
}
