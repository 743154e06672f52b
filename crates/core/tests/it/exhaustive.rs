//! All short sequences of commands in small scopes: every invariant after every step.

use windlass_core::{LaneState, LimitKind, OnTimeout};

use crate::explore::REPLAY_MS;
use crate::explore::{Act, BACKOFF_MS, GRANT_MS, IDLE_MS, LEASE_MS, SILENT_MS, Scope, Until};
use crate::workflows::Operation;

const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;

/// Two tasks in one lane, and nearly all commands about them.
const TWO_TASKS: Scope = Scope {
    start: &[],
    alphabet: &[
        Act::CreatePlain("a"),
        Act::CreateRetried("b"),
        Act::Claim,
        Act::ClaimOnly,
        Act::Begin,
        Act::Complete,
        Act::CompleteEarlier,
        Act::Fail,
        Act::Release,
        Act::Snooze,
        Act::Renew,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::Sweep,
        Act::After(LEASE_MS),
        Act::Lane(LaneState::Paused),
        Act::Lane(LaneState::Active),
        Act::Limit(Some(1)),
    ],
    racing: &[],
    depth: 6,
    floor: (5_000, 22_000),
};

/// One task under leases that end in every way, until its attempts are spent.
const ATTEMPTS: Scope = Scope {
    start: &[Act::CreateRetried("a")],
    alphabet: &[
        Act::Claim,
        Act::ClaimOnly,
        Act::Begin,
        Act::Complete,
        Act::Fail,
        Act::Release,
        Act::Snooze,
        Act::Renew,
        Act::Replay("a"),
        Act::After(BACKOFF_MS),
        Act::Wait(LEASE_MS),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (2_000, 9_000),
};

/// A lane with a limit that changes while leases are granted and end.
const LIMITS: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::CreatePlain("b"), Act::CreatePlain("c")],
    alphabet: &[
        Act::Claim,
        Act::Complete,
        Act::CompleteEarlier,
        Act::Release,
        Act::Cancel("a"),
        Act::Limit(Some(1)),
        Act::Limit(Some(2)),
        Act::Lane(LaneState::Draining),
        Act::Lane(LaneState::Disabled),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (3_000, 10_000),
};

/// The directory: routes that fill, empty and are deleted in two steps.
const DIRECTORY: Scope = Scope {
    start: &[],
    alphabet: &[
        Act::CreatePlain("a"),
        Act::CreateTagged("b"),
        Act::Claim,
        Act::Complete,
        Act::Release,
        Act::Snooze,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::After(HOUR_MS),
        Act::After(MINUTE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (5_000, 11_000),
};

/// Nodes that list and delete the same route of the directory at once.
const DIRECTORY_RACES: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::Claim, Act::Complete],
    alphabet: &[Act::Claim, Act::Release, Act::After(HOUR_MS), Act::After(MINUTE_MS)],
    racing: &[
        Act::CreatePlain("b"),
        Act::Replay("a"),
        Act::Claim,
        Act::After(HOUR_MS),
        Act::After(MINUTE_MS),
    ],
    depth: 3,
    floor: (450, 4_500),
};

/// Nodes that act on the same leases at once.
const LEASE_RACES: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::CreateRetried("b"), Act::Limit(Some(1))],
    alphabet: &[Act::Claim, Act::Wait(LEASE_MS), Act::Limit(Some(2))],
    racing: &[
        Act::Claim,
        Act::Complete,
        Act::Fail,
        Act::Renew,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::Limit(Some(1)),
        Act::Lane(LaneState::Paused),
        Act::After(LEASE_MS),
    ],
    depth: 3,
    floor: (750, 16_000),
};

/// A limit that is removed and set again while leases that it counted are alive.
const LIFTED: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::CreatePlain("b")],
    alphabet: &[Act::Claim, Act::Complete, Act::Limit(Some(1)), Act::Limit(None)],
    racing: &[],
    depth: 6,
    floor: (30, 100),
};

/// An id that is deleted and used again.
const LIVES: Scope = Scope {
    start: &[Act::CreatePlain("a")],
    alphabet: &[
        Act::CreatePlain("a"),
        Act::Claim,
        Act::Complete,
        Act::CompleteEarlier,
        Act::Cancel("a"),
        Act::DeleteTask("a"),
        Act::After(8 * 24 * HOUR_MS),
    ],
    racing: &[],
    depth: 7,
    floor: (100, 300),
};

/// A parent, two children and a grandchild that are created, wait, end and are replayed.
const FAMILY: Scope = Scope {
    start: &[Act::CreatePlain("a")],
    alphabet: &[
        Act::CreateChild("b", "a"),
        Act::CreateChild("c", "a"),
        Act::CreateChild("d", "b"),
        Act::Claim,
        Act::WaitChildren("a"),
        Act::WaitChildren("b"),
        Act::CompleteOf("a"),
        Act::CompleteOf("b"),
        Act::Cancel("a"),
        Act::Cancel("b"),
        Act::Replay("a"),
        Act::Replay("b"),
        Act::DeleteTask("a"),
        Act::DeleteTask("b"),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (4_500, 16_000),
};

/// A parent that waits for its two children, and what can happen to the three.
const PARKED: Scope = Scope {
    start: &[
        Act::CreateRetried("a"),
        Act::Claim,
        Act::CreateChild("b", "a"),
        Act::CreateChild("c", "a"),
        Act::WaitChildren("a"),
    ],
    alphabet: &[
        Act::Claim,
        Act::ClaimOnly,
        Act::Begin,
        Act::Complete,
        Act::CompleteEarlier,
        Act::Fail,
        Act::Release,
        Act::Snooze,
        Act::WaitChildren("a"),
        Act::Cancel("c"),
        Act::Replay("c"),
        Act::CreateChild("d", "b"),
        Act::After(BACKOFF_MS),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (5_000, 15_000),
};

/// A parent and its children with one concurrency key, which admits one task at a time: a waiting
/// parent does not block its children.
const LIMITED_FAMILY: Scope = Scope {
    start: &[Act::CreateKeyed("a"), Act::Claim, Act::CreateKeyedChild("b", "a")],
    alphabet: &[
        Act::CreateKeyedChild("c", "a"),
        Act::Claim,
        Act::Complete,
        Act::Fail,
        Act::Release,
        Act::WaitChildren("a"),
        Act::Cancel("a"),
        Act::Cancel("b"),
        Act::Replay("a"),
        Act::Replay("b"),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (2_500, 7_500),
};

/// Nodes that create, end and await the children of one parent at once.
const FAMILY_RACES: Scope = Scope {
    start: &[Act::CreateFamily("b", "a"), Act::Claim, Act::Claim, Act::CreateChild("c", "a")],
    alphabet: &[Act::Claim, Act::After(LEASE_MS), Act::DeleteTask("a")],
    racing: &[
        Act::CreateChild("d", "a"),
        Act::WaitChildren("a"),
        Act::CompleteOf("a"),
        Act::CompleteOf("b"),
        Act::Cancel("a"),
        Act::Cancel("c"),
        Act::Replay("a"),
        Act::Replay("b"),
        Act::Sweep,
    ],
    depth: 3,
    floor: (800, 27_000),
};

/// Nodes that create the first child of a parent while it ends, and delete them all.
const FIRST_CHILD_RACES: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::Claim],
    alphabet: &[Act::Claim, Act::After(8 * 24 * HOUR_MS)],
    racing: &[
        Act::CreateChild("b", "a"),
        Act::CreateChild("c", "a"),
        Act::WaitChildren("a"),
        Act::CompleteOf("a"),
        Act::Cancel("b"),
        Act::DeleteTask("a"),
        Act::CreatePlain("a"),
    ],
    depth: 3,
    floor: (130, 4_200),
};

/// Three tasks of one concurrency key, and all that changes its waiting tasks.
const KEYS: Scope = Scope {
    start: &[],
    alphabet: &[
        Act::CreateKeyed("a"),
        Act::CreateKeyed("b"),
        Act::CreateKeyedDated("c"),
        Act::Claim,
        Act::Complete,
        Act::CompleteEarlier,
        Act::Fail,
        Act::Release,
        Act::Snooze,
        Act::Cancel("a"),
        Act::Cancel("b"),
        Act::Replay("a"),
        Act::Raise("b"),
        Act::Quota(LimitKind::Concurrency, Some(2), None),
        Act::Quota(LimitKind::Concurrency, None, None),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (5_000, 20_000),
};

/// A key with a rate, while time passes in steps smaller and larger than the window.
const RATES: Scope = Scope {
    start: &[Act::CreateKeyed("a"), Act::CreateKeyed("b"), Act::CreateKeyed("c")],
    alphabet: &[
        Act::Claim,
        Act::Complete,
        Act::Release,
        Act::Cancel("b"),
        Act::Quota(LimitKind::Concurrency, None, Some((1, 5_000))),
        Act::Quota(LimitKind::Concurrency, None, Some((2, 8_000))),
        Act::Quota(LimitKind::Concurrency, Some(0), None),
        Act::After(3_000),
        Act::Wait(5_200),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (3_000, 15_000),
};

/// A session that moves between two workers.
const SESSIONS: Scope = Scope {
    start: &[Act::CreateInSession("a"), Act::CreateInSession("b")],
    alphabet: &[
        Act::CreateInSession("c"),
        Act::Claim,
        Act::ClaimAs("v"),
        Act::ClaimAs("w"),
        Act::Complete,
        Act::Release,
        Act::Snooze,
        Act::Cancel("b"),
        Act::Replay("a"),
        Act::ReleaseSession,
        Act::Quota(LimitKind::Session, Some(2), None),
        Act::Quota(LimitKind::Session, None, None),
        Act::After(IDLE_MS),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (3_000, 11_000),
};

/// Quotas of a lane and of its tenant, set and removed while leases are granted and end.
const QUOTAS: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::CreateKeyed("b"), Act::CreatePlain("c")],
    alphabet: &[
        Act::Claim,
        Act::Complete,
        Act::CompleteEarlier,
        Act::Release,
        Act::Cancel("a"),
        Act::Quota(LimitKind::Lane, Some(1), None),
        Act::Quota(LimitKind::Lane, None, None),
        Act::Quota(LimitKind::Tenant, Some(2), Some((1, 5_000))),
        Act::Quota(LimitKind::Tenant, None, None),
        Act::After(5_200),
        Act::After(LEASE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (5_000, 20_000),
};

/// Nodes that act under the same concurrency limit at once.
const LIMIT_RACES: Scope = Scope {
    start: &[Act::CreateKeyed("a"), Act::CreateKeyed("b"), Act::Claim],
    alphabet: &[
        Act::Claim,
        Act::Quota(LimitKind::Concurrency, Some(2), None),
        Act::After(LEASE_MS),
    ],
    racing: &[
        Act::CreateKeyed("c"),
        Act::Claim,
        Act::Complete,
        Act::Release,
        Act::Cancel("b"),
        Act::Quota(LimitKind::Concurrency, Some(1), None),
        Act::Quota(LimitKind::Concurrency, None, Some((1, 5_000))),
        Act::Raise("c"),
        Act::After(LEASE_MS),
    ],
    depth: 3,
    floor: (700, 10_000),
};

/// Nodes that act on the same session at once.
const SESSION_RACES: Scope = Scope {
    start: &[
        Act::Quota(LimitKind::Session, Some(2), None),
        Act::CreateInSession("a"),
        Act::CreateInSession("b"),
        Act::CreateInSession("c"),
    ],
    alphabet: &[Act::ClaimAs("w"), Act::Complete, Act::After(IDLE_MS)],
    racing: &[
        Act::ClaimAs("v"),
        Act::ClaimAs("w"),
        Act::Complete,
        Act::ReleaseSession,
        Act::After(LEASE_MS),
    ],
    depth: 4,
    floor: (700, 5_000),
};

/// Nodes that claim under the same quota at once.
const QUOTA_RACES: Scope = Scope {
    start: &[
        Act::CreatePlain("a"),
        Act::CreatePlain("b"),
        Act::Quota(LimitKind::Tenant, Some(1), None),
    ],
    alphabet: &[Act::Claim, Act::Complete, Act::After(LEASE_MS)],
    racing: &[
        Act::Claim,
        Act::Complete,
        Act::Cancel("a"),
        Act::Quota(LimitKind::Tenant, None, None),
        Act::Quota(LimitKind::Lane, Some(1), None),
        Act::After(LEASE_MS),
    ],
    depth: 3,
    floor: (300, 3_000),
};

/// A task that is granted to one worker or another, leased and revoked.
const GRANTS: Scope = Scope {
    start: &[Act::CreateRetried("a"), Act::CreatePlain("b"), Act::Limit(Some(1))],
    alphabet: &[
        Act::Grant("a"),
        Act::GrantOther("a"),
        Act::ClaimGranted("a"),
        Act::Revoke("a"),
        Act::Claim,
        Act::Complete,
        Act::Release,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::Lane(LaneState::Paused),
        Act::Wait(GRANT_MS),
        Act::After(GRANT_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (2_000, 9_000),
};

/// Nodes that grant, lease, revoke and claim the same task at once.
const GRANT_RACES: Scope = Scope {
    start: &[Act::CreateRetried("a")],
    alphabet: &[Act::Grant("a"), Act::Claim, Act::Wait(GRANT_MS)],
    racing: &[
        Act::Grant("a"),
        Act::GrantOther("a"),
        Act::ClaimGranted("a"),
        Act::Revoke("a"),
        Act::Claim,
        Act::Complete,
        Act::Cancel("a"),
        Act::Lane(LaneState::Paused),
        Act::After(GRANT_MS),
    ],
    depth: 3,
    floor: (200, 12_000),
};

/// A worker that dies, returns or is retired, and its leases.
const WORKERS: Scope = Scope {
    start: &[Act::CreateRetried("a"), Act::CreatePlain("b"), Act::Register],
    alphabet: &[
        Act::Register,
        Act::Retire,
        Act::ClaimRegistered,
        Act::Claim,
        Act::Begin,
        Act::Complete,
        Act::Release,
        Act::Revoke("a"),
        Act::Grant("a"),
        Act::ClaimGranted("a"),
        Act::Wait(SILENT_MS),
        Act::After(SILENT_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (2_000, 6_000),
};

/// Nodes that declare a worker dead while it sends heartbeats, claims and settles.
const WORKER_RACES: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::CreatePlain("b"), Act::Register, Act::ClaimRegistered],
    alphabet: &[Act::ClaimRegistered, Act::Wait(SILENT_MS), Act::After(SILENT_MS)],
    racing: &[
        Act::Register,
        Act::Retire,
        Act::ClaimRegistered,
        Act::Complete,
        Act::Renew,
        Act::Revoke("a"),
        Act::Cancel("a"),
        Act::After(SILENT_MS),
    ],
    depth: 3,
    floor: (900, 23_000),
};

/// A request that two owners ask for, that is answered, released, late and deleted, and its
/// effects.
const REQUESTS: Scope = Scope {
    start: &[],
    alphabet: &[
        Act::Admit("o"),
        Act::Admit("q"),
        Act::AdmitOther("q"),
        Act::CompleteRequest("o"),
        Act::CompleteRequest("q"),
        Act::ReleaseRequest("o"),
        Act::Call("o"),
        Act::Call("q"),
        Act::Settle("o"),
        Act::Wait(LEASE_MS),
        Act::After(LEASE_MS),
        Act::After(REPLAY_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (100, 1_000),
};

const REQUEST_RACES: Scope = Scope {
    start: &[Act::Admit("o")],
    alphabet: &[Act::Admit("q"), Act::Call("o"), Act::Wait(LEASE_MS), Act::After(REPLAY_MS)],
    racing: &[
        Act::Admit("o"),
        Act::Admit("q"),
        Act::AdmitOther("q"),
        Act::CompleteRequest("o"),
        Act::CompleteRequest("q"),
        Act::ReleaseRequest("o"),
        Act::Call("o"),
        Act::Call("q"),
        Act::Settle("o"),
        Act::After(LEASE_MS),
    ],
    depth: 3,
    floor: (100, 1_000),
};

/// The effects of a task, through every way that its lease can end.
const CALLS: Scope = Scope {
    start: &[Act::CreateRetried("a"), Act::Claim],
    alphabet: &[Act::Claim, Act::After(LEASE_MS), Act::After(BACKOFF_MS), Act::Replay("a")],
    racing: &[
        Act::CallOfTask,
        Act::SettleOfTask,
        Act::Complete,
        Act::Fail,
        Act::Release,
        Act::Cancel("a"),
        Act::DeleteTask("a"),
    ],
    depth: 4,
    floor: (100, 1_000),
};

/// A task that is suspended, receives messages and resumes, in every order.
const SIGNALS: Scope = Scope {
    start: &[Act::CreateRetried("a"), Act::Claim],
    alphabet: &[
        Act::Claim,
        Act::Suspend(Until::Go, None),
        Act::Suspend(Until::Both, Some(OnTimeout::Resume)),
        Act::Send("go"),
        Act::PostKeyed("more"),
        Act::PostLater("go"),
        Act::Resume,
        Act::Take,
        Act::Complete,
        Act::Fail,
        Act::Release,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::DeleteTask("a"),
        Act::CreateRetried("a"),
        Act::Wait(LEASE_MS),
        Act::After(LEASE_MS),
        Act::After(8 * 24 * HOUR_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (20_000, 60_000),
};

/// Tokens that are issued, used and expire, under keys that are rotated.
const TOKENS: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::Rotate("k1"), Act::Claim],
    alphabet: &[
        Act::Claim,
        Act::Waitpoint,
        Act::Suspend(Until::Approved, Some(OnTimeout::Escalate)),
        Act::Suspend(Until::Operator, Some(OnTimeout::Cancel)),
        Act::CompleteWaitpoint,
        Act::Rotate("k2"),
        Act::Resume,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::DeleteTask("a"),
        Act::CreatePlain("a"),
        Act::After(LEASE_MS),
        Act::After(8 * 24 * HOUR_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (4_500, 13_000),
};

/// What several nodes do to the same task at once.
const TOLD_AT_ONCE: &[Act] = &[
    Act::Suspend(Until::Both, Some(OnTimeout::Resume)),
    Act::Suspend(Until::Approved, Some(OnTimeout::Expire)),
    Act::Send("go"),
    Act::PostKeyed("more"),
    Act::CompleteWaitpoint,
    Act::Waitpoint,
    Act::Resume,
    Act::Take,
    Act::Claim,
    Act::Cancel("a"),
    Act::DeleteTask("a"),
    Act::After(LEASE_MS),
    Act::After(8 * 24 * HOUR_MS),
];

/// Nodes that signal, suspend, time out, cancel and delete a leased task at once.
const HELD_RACES: Scope = Scope {
    start: &[Act::CreateRetried("a"), Act::Rotate("k1"), Act::Claim, Act::Waitpoint],
    alphabet: &[
        Act::Suspend(Until::Go, Some(OnTimeout::Fail)),
        Act::PostLater("go"),
        Act::Wait(LEASE_MS),
        Act::Complete,
    ],
    racing: TOLD_AT_ONCE,
    depth: 2,
    floor: (850, 15_000),
};

/// The same with a suspended task that has one of two messages.
const SUSPENDED_RACES: Scope = Scope {
    start: &[
        Act::CreateRetried("a"),
        Act::Rotate("k1"),
        Act::Claim,
        Act::Suspend(Until::Both, Some(OnTimeout::Fail)),
        Act::Send("go"),
    ],
    alphabet: &[Act::PostLater("more"), Act::Wait(LEASE_MS)],
    racing: TOLD_AT_ONCE,
    depth: 2,
    floor: (600, 10_000),
};

/// A workflow that starts an activity and a timer, receives messages, gets a cancel request,
/// continues as new and is deleted, in every order.
const WORKFLOW: Scope = Scope {
    start: &[Act::CreateWorkflow("a"), Act::Claim, Act::Turn("a", Operation::Make)],
    alphabet: &[
        Act::Claim,
        Act::Turn("a", Operation::Make),
        Act::Turn("a", Operation::CancelSteps),
        Act::Turn("a", Operation::End),
        Act::Turn("a", Operation::StartOver),
        Act::Turn("a", Operation::Earlier),
        Act::TurnEarlier("a"),
        Act::CompleteStep("a"),
        Act::Fail,
        Act::Release,
        Act::Send("go"),
        Act::RequestCancel("a"),
        Act::Cancel("a"),
        Act::Prune("a"),
        Act::DeleteTask("a"),
        Act::After(LEASE_MS),
        Act::After(8 * 24 * HOUR_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (4_000, 13_000),
};

/// What several nodes do at once to a workflow that has an open activity and an open timer.
const WORKFLOW_RACES: Scope = Scope {
    start: &[Act::CreateWorkflow("a"), Act::Claim, Act::Turn("a", Operation::Make), Act::Claim],
    alphabet: &[Act::Claim, Act::Wait(LEASE_MS)],
    racing: &[
        Act::Claim,
        Act::Turn("a", Operation::Make),
        Act::Turn("a", Operation::CancelSteps),
        Act::Turn("a", Operation::End),
        Act::Turn("a", Operation::StartOver),
        Act::CompleteStep("a"),
        Act::Send("go"),
        Act::RequestCancel("a"),
        Act::Cancel("a"),
        Act::DeleteTask("a"),
        Act::After(LEASE_MS),
    ],
    depth: 2,
    floor: (200, 5_000),
};

#[track_caller]
fn check(name: &str, scope: &Scope) {
    let found = scope.check(name);
    eprintln!("{name}: {} states, {} steps", found.states, found.steps);
}

#[test]
fn two_tasks() {
    check("two_tasks", &TWO_TASKS);
}

#[test]
fn attempts() {
    check("attempts", &ATTEMPTS);
}

#[test]
fn limits() {
    check("limits", &LIMITS);
}

#[test]
fn directory() {
    check("directory", &DIRECTORY);
}

#[test]
fn directory_races() {
    check("directory_races", &DIRECTORY_RACES);
}

#[test]
fn lease_races() {
    check("lease_races", &LEASE_RACES);
}

#[test]
fn lifted_limits() {
    check("lifted_limits", &LIFTED);
}

#[test]
fn lives_of_an_id() {
    check("lives_of_an_id", &LIVES);
}

#[test]
fn families() {
    check("families", &FAMILY);
}

#[test]
fn parked_parents() {
    check("parked_parents", &PARKED);
}

#[test]
fn limited_families() {
    check("limited_families", &LIMITED_FAMILY);
}

#[test]
fn family_races() {
    check("family_races", &FAMILY_RACES);
}

#[test]
fn first_child_races() {
    check("first_child_races", &FIRST_CHILD_RACES);
}

#[test]
fn keys() {
    check("keys", &KEYS);
}

#[test]
fn rates() {
    check("rates", &RATES);
}

#[test]
fn sessions() {
    check("sessions", &SESSIONS);
}

#[test]
fn quotas() {
    check("quotas", &QUOTAS);
}

#[test]
fn limit_races() {
    check("limit_races", &LIMIT_RACES);
}

#[test]
fn session_races() {
    check("session_races", &SESSION_RACES);
}

#[test]
fn quota_races() {
    check("quota_races", &QUOTA_RACES);
}

#[test]
fn requests() {
    check("requests", &REQUESTS);
}

#[test]
fn request_races() {
    check("request_races", &REQUEST_RACES);
}

#[test]
fn calls() {
    check("calls", &CALLS);
}

#[test]
fn signals() {
    check("signals", &SIGNALS);
}

#[test]
fn tokens() {
    check("tokens", &TOKENS);
}

#[test]
fn held_races() {
    check("held_races", &HELD_RACES);
}

#[test]
fn suspended_races() {
    check("suspended_races", &SUSPENDED_RACES);
}

#[test]
fn grants() {
    check("grants", &GRANTS);
}

#[test]
fn grant_races() {
    check("grant_races", &GRANT_RACES);
}

#[test]
fn workers() {
    check("workers", &WORKERS);
}

#[test]
fn worker_races() {
    check("worker_races", &WORKER_RACES);
}

#[test]
fn workflows() {
    check("workflows", &WORKFLOW);
}

#[test]
fn workflow_races() {
    check("workflow_races", &WORKFLOW_RACES);
}
