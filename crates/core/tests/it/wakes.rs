//! Which claims are woken when a task may have become claimable.

use windlass_core::command::{
    Cancel, Claim, Complete, Create, Delay, Fail, LimitLane, NewTask,
    QuotaScope::{self, Tenant},
    Release, Replay, Revoke, SetLaneState, SetQuota, Snooze, Sweep,
};
use windlass_core::{
    Command, FailureClass, LaneState, LimitKey, Rate, ReferenceTables, Retry, RetryPolicy,
    SESSIONS, Timestamp,
};

use crate::batch::{START, fence, key, lane};

/// Reference tables after these commands, one after the other.
fn after(commands: &[Command]) -> ReferenceTables {
    let mut tables = ReferenceTables::default();
    for command in commands {
        tables.execute(START, command).expect("a fixture is accepted");
    }
    tables
}

fn new_task(id: &str) -> NewTask {
    let mut task = NewTask { lane: lane(), ..NewTask::new(id, "k") };
    task.policy.retry = Some(RetryPolicy::fixed(3, 60_000));
    task
}

fn create() -> Command {
    Create::one(new_task("t")).into()
}

fn claim() -> Command {
    Claim { lanes: vec![lane()], ..Claim::new("w") }.into()
}

fn limit(limit: Option<u32>) -> Command {
    LimitLane { tenant: Default::default(), lane: lane(), limit }.into()
}

fn set(state: LaneState) -> Command {
    SetLaneState { tenant: Default::default(), lane: lane(), state }.into()
}

fn complete() -> Command {
    Complete { fence: fence("t", 1), result: None }.into()
}

fn fail() -> Command {
    let (class, retry) = (FailureClass::Transient, Retry::Policy);
    Fail { fence: fence("t", 1), class, reason: String::new(), retry }.into()
}

fn cancel() -> Command {
    Cancel { task: key("t"), reason: String::new() }.into()
}

fn sweep() -> Command {
    Sweep::default().into()
}

fn keyed(id: &str) -> Command {
    let limit_key = Some(LimitKey::Concurrency("k".into()));
    Create::one(NewTask { limit_key, ..new_task(id) }).into()
}

fn in_session(id: &str) -> Command {
    let limit_key = Some(LimitKey::Session("s".into()));
    Create::one(NewTask { limit_key, ..new_task(id) }).into()
}

fn claim_session() -> Command {
    let mut claim = Claim { lanes: vec![lane()], ..Claim::new("w") };
    claim.capabilities.names.insert(SESSIONS.to_owned());
    claim.into()
}

fn key_scope() -> QuotaScope {
    QuotaScope::Concurrency("k".into())
}

fn quota(scope: QuotaScope, limit: Option<u32>, rate: Option<Rate>) -> Command {
    SetQuota { tenant: Default::default(), scope, limit, rate }.into()
}

/// The wakes of a command: a route, or `*` for any.
fn wakes(tables: &ReferenceTables, later_ms: u64, command: &Command) -> String {
    let now: Timestamp = START.plus_ms(later_ms);
    let (outcome, changes) = tables.attempt(now, command);
    outcome.expect("it is accepted");
    let each = changes.wakes.iter().map(|(wake, tasks)| {
        let route = wake.route.as_ref().map_or("*", |route| route.as_str());
        format!("{}/{route} x{tasks}", wake.lane)
    });
    each.collect::<Vec<_>>().join(", ")
}

#[test]
fn each_command_wakes_the_claims_it_may_serve() {
    let mut late = new_task("t");
    late.delay = Delay::For { ms: 10_000 };
    let mut dated = new_task("t");
    dated.deadline_ms = Some(1_000);
    let mut brief = new_task("t");
    brief.policy.attempt_timeout_ms = Some(1_000);
    let brief = [Create::one(brief).into(), claim()];
    let mut special = new_task("t");
    special.capabilities = ["gpu".to_owned()].into();
    let (late, dated) = (Create::one(late), Create::one(dated));
    let special: Command = Create::one(special).into();
    let (release, delay) =
        (Release { fence: fence("t", 1) }, Snooze { fence: fence("t", 1), delay_ms: 5 });
    let revoke = Revoke { task: key("t"), reason: String::new() };
    let replay = Replay { task: key("t"), execution: 0 };
    let open = [create(), claim()];
    let limited = [create(), limit(Some(1)), claim()];
    let keys = [keyed("t"), keyed("u"), claim()];
    let session = [in_session("t"), claim_session(), in_session("u")];
    let held_session = [&session[..], &[complete()]].concat();
    let spent = [
        create(),
        quota(Tenant, Some(1), None),
        claim(),
        claim(),
        Create::one(new_task("u")).into(),
    ];
    let rate = Some(Rate { limit: 1, window_ms: 10_000 });
    let rated = [create(), quota(Tenant, None, rate), claim(), claim()];
    let none = "";
    let rows: Vec<(&str, Vec<Command>, u64, Command, &str)> = vec![
        ("a task is created", vec![], 0, create(), "l/ x1"),
        ("for some workers", vec![], 0, special, "l/gpu x1"),
        ("for later", vec![], 0, late.clone().into(), none),
        ("it is due", vec![late.into()], 10_000, sweep(), "l/ x1"),
        ("it is completed", open.to_vec(), 0, complete(), none),
        ("and makes room", limited.to_vec(), 0, complete(), "l/* x1"),
        ("its attempt has failed", open.to_vec(), 0, fail(), none),
        ("and makes room", limited.to_vec(), 0, fail(), "l/* x1"),
        ("it is snoozed, and makes room", limited.to_vec(), 0, delay.into(), "l/* x1"),
        ("it is released", open.to_vec(), 0, release.clone().into(), "l/ x1"),
        ("and makes room", limited.to_vec(), 0, release.into(), "l/* x1, l/ x1"),
        ("it is cancelled", open.to_vec(), 0, cancel(), "l/!t x1"),
        ("and makes room", limited.to_vec(), 0, cancel(), "l/* x1, l/!t x1"),
        ("it is revoked", open.to_vec(), 0, revoke.into(), "l/ x1, l/!t x1"),
        ("it has no lease", vec![create()], 0, cancel(), none),
        ("its attempt took too long", brief.to_vec(), 1_000, sweep(), "l/!t x1"),
        ("its lease has expired", open.to_vec(), 30_000, sweep(), "l/ x1"),
        ("and makes room", limited.to_vec(), 30_000, sweep(), "l/* x1, l/ x1"),
        ("it expires and uncovers others", vec![dated.into()], 1_000, sweep(), "l/ x1"),
        ("it is replayed", [&open[..], &[complete()]].concat(), 0, replay.into(), "l/ x1"),
        ("a lane is paused", vec![create()], 0, set(LaneState::Paused), none),
        (
            "and is active again",
            vec![create(), set(LaneState::Paused)],
            0,
            set(LaneState::Active),
            "l/* x1",
        ),
        ("a limit is raised", limited.to_vec(), 0, limit(Some(2)), "l/* x1"),
        ("a limit is removed", limited.to_vec(), 0, limit(None), "l/* x1"),
        ("a limit stays", limited.to_vec(), 0, limit(Some(1)), none),
        ("one of a key is admitted", vec![], 0, keyed("t"), "l/ x1"),
        ("the next is not", vec![keyed("t")], 0, keyed("u"), none),
        ("until the first ends", keys.to_vec(), 0, complete(), "l/ x1"),
        ("or more may run", keys.to_vec(), 0, quota(key_scope(), Some(2), None), "l/ x1"),
        ("one of a session", session[..1].to_vec(), 0, claim_session(), none),
        ("the next is granted to one worker", session.to_vec(), 0, complete(), "l/* x1"),
        (
            "and released when that is idle",
            held_session.to_vec(),
            60_000,
            sweep(),
            "l/windlass.session x1",
        ),
        ("a quota that rejected no claim", spent[..3].to_vec(), 0, complete(), none),
        ("a quota that rejected a claim", spent.to_vec(), 0, complete(), "l/* x1"),
        ("a quota is raised", spent.to_vec(), 0, quota(Tenant, Some(2), None), "l/* x1"),
        ("a quota is removed", spent.to_vec(), 0, quota(Tenant, None, None), "l/* x1"),
        ("a rate opens", rated.to_vec(), 11_000, sweep(), "l/* x1"),
    ];
    for (what, before, later_ms, command, expected) in rows {
        assert_eq!(wakes(&after(&before), later_ms, &command), expected, "{what}: {command:?}");
    }
}
