use crate::command::{Claim, Create, HeartbeatNode, NewMessage, NewTask, RotateSigningKey};
use crate::keyring::Secret;
use crate::name::{LaneName, Tenant};
use crate::task::{Fence, RetryPolicy, SESSIONS, Task, TaskKey};
use crate::testing::Stage;
use crate::time::Timestamp;
use crate::token::Token;

pub(crate) fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}

/// The fence of the `nth` claim of task `t`, when it was created at the start.
pub(crate) fn fence(nth: u64) -> Fence {
    fence_of("t", nth)
}

pub(crate) fn fence_of(id: &str, nth: u64) -> Fence {
    Fence { task: key(id), epoch: START.micros() as u64 + nth }
}

pub(super) const START: Timestamp = Timestamp::from_millis(1_000_000);

pub(crate) fn lane() -> LaneName {
    LaneName::new("l")
}

/// The task of the tables: two attempts, a minute apart.
pub(crate) fn new_task(id: &str) -> NewTask {
    let mut task = NewTask::new(id, "k");
    task.lane = lane();
    task.policy.retry = Some(RetryPolicy::fixed(2, 60_000));
    task
}

/// A child of task `t`, in lane `children`.
pub(crate) fn child(id: &str) -> NewTask {
    NewTask { parent: Some("t".into()), lane: "children".into(), ..new_task(id) }
}

pub(crate) fn claim() -> Claim {
    Claim { lanes: vec![lane()], ..Claim::new("w") }
}

/// A claim of a worker that owns sessions.
pub(crate) fn session_claim(worker: &str) -> Claim {
    let mut claim = Claim { worker: worker.into(), ..claim() };
    claim.capabilities.names.insert(SESSIONS.to_owned());
    claim
}

/// The token of the waitpoint that task `t` has from its creation on.
pub(crate) fn token() -> Token {
    Stage::with_task("waiting").open_waitpoint()
}

/// A message to `t`.
pub(crate) fn message(name: &str) -> NewMessage {
    NewMessage::new("t", name, "ops")
}

/// A signing key whose secret is this pair of digits, repeated.
pub(crate) fn rotation(id: &str, secret: &str) -> RotateSigningKey {
    RotateSigningKey {
        tenant: Tenant::default(),
        id: id.into(),
        secret: Secret::new(secret.repeat(32)),
        grace_ms: 60_000,
        if_absent: false,
    }
}

/// The node heartbeat of the tables: every five seconds, two seconds after its start.
pub(crate) fn beat() -> HeartbeatNode {
    HeartbeatNode {
        id: "n".into(),
        name: "host".into(),
        pid: 7,
        version: "1.0.0".into(),
        format: 2,
        up_ms: 2_000,
        heartbeat_interval_ms: 5_000,
    }
}

/// A waiting task that was just created.
pub(crate) fn task(id: &str) -> Task {
    let mut stage = Stage::new();
    stage.must(Create::one(new_task(id)));
    stage.task(id).expect("it was just created")
}
