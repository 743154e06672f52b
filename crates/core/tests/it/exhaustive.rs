//! All short sequences of commands in small scopes: every invariant after every step.

use windlass_core::{LaneState, OnTimeout};

use crate::explore::{Act, BACKOFF_MS, LEASE_MS, Scope, Until};

const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;

/// Two tasks in one lane, and nearly everything that can be said about them.
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
        Act::Delay,
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
        Act::Delay,
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

/// A lane with a limit that moves while leases come and go.
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

/// The directory: routes that fill, empty and are closed in two steps.
const DIRECTORY: Scope = Scope {
    start: &[],
    alphabet: &[
        Act::CreatePlain("a"),
        Act::CreateTagged("b"),
        Act::Claim,
        Act::Complete,
        Act::Release,
        Act::Delay,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::After(HOUR_MS),
        Act::After(MINUTE_MS),
    ],
    racing: &[],
    depth: 6,
    floor: (5_000, 11_000),
};

/// Nodes that list and unlist the same line of the directory at once.
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

/// A limit that is lifted and set again while leases that it counted are alive.
const LIFTED: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::CreatePlain("b")],
    alphabet: &[Act::Claim, Act::Complete, Act::Limit(Some(1)), Act::Limit(None)],
    racing: &[],
    depth: 6,
    floor: (30, 100),
};

/// An id that is forgotten and used again.
const LIVES: Scope = Scope {
    start: &[Act::CreatePlain("a")],
    alphabet: &[
        Act::CreatePlain("a"),
        Act::Claim,
        Act::Complete,
        Act::CompleteEarlier,
        Act::Cancel("a"),
        Act::Reap("a"),
        Act::After(8 * 24 * HOUR_MS),
    ],
    racing: &[],
    depth: 7,
    floor: (100, 300),
};

/// A task that waits, is told, and goes on, in every order.
const SIGNALS: Scope = Scope {
    start: &[Act::CreateRetried("a"), Act::Claim],
    alphabet: &[
        Act::Claim,
        Act::Suspend(Until::Go, None),
        Act::Suspend(Until::Both, Some(OnTimeout::Resume)),
        Act::Post("go"),
        Act::PostKeyed("more"),
        Act::PostLater("go"),
        Act::Resume,
        Act::Take,
        Act::Complete,
        Act::Fail,
        Act::Release,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::Reap("a"),
        Act::CreateRetried("a"),
        Act::Wait(LEASE_MS),
        Act::After(LEASE_MS),
        Act::After(8 * 24 * HOUR_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (20_000, 60_000),
};

/// Tokens that are made, used, expire and are of keys that go.
const TOKENS: Scope = Scope {
    start: &[Act::CreatePlain("a"), Act::Rotate("k1"), Act::Claim],
    alphabet: &[
        Act::Claim,
        Act::Waitpoint,
        Act::Suspend(Until::Approved, Some(OnTimeout::Escalate)),
        Act::Suspend(Until::Operator, Some(OnTimeout::Cancel)),
        Act::Signal,
        Act::Rotate("k2"),
        Act::Resume,
        Act::Cancel("a"),
        Act::Replay("a"),
        Act::Reap("a"),
        Act::CreatePlain("a"),
        Act::After(LEASE_MS),
        Act::After(8 * 24 * HOUR_MS),
    ],
    racing: &[],
    depth: 5,
    floor: (4_500, 13_000),
};

/// What nodes say to the same task at once.
const TOLD_AT_ONCE: &[Act] = &[
    Act::Suspend(Until::Both, Some(OnTimeout::Resume)),
    Act::Suspend(Until::Approved, Some(OnTimeout::Expire)),
    Act::Post("go"),
    Act::PostKeyed("more"),
    Act::Signal,
    Act::Waitpoint,
    Act::Resume,
    Act::Take,
    Act::Claim,
    Act::Cancel("a"),
    Act::Reap("a"),
    Act::After(LEASE_MS),
    Act::After(8 * 24 * HOUR_MS),
];

/// Nodes that tell, suspend, time out, cancel and forget a held task at once.
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

/// The same of a suspended task, for which one of two messages has come.
const SUSPENDED_RACES: Scope = Scope {
    start: &[
        Act::CreateRetried("a"),
        Act::Rotate("k1"),
        Act::Claim,
        Act::Suspend(Until::Both, Some(OnTimeout::Fail)),
        Act::Post("go"),
    ],
    alphabet: &[Act::PostLater("more"), Act::Wait(LEASE_MS)],
    racing: TOLD_AT_ONCE,
    depth: 2,
    floor: (600, 10_000),
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
