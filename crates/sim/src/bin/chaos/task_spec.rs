//! The tasks of a run: each follows from its number and the seed.

use serde::{Deserialize, Serialize};
use windlass_core::command::{IdempotencyWindow, NewTask};
use windlass_core::{Payload, RetryPolicy};
use windlass_store_test::Random;

pub(crate) const KIND: &str = "work";
/// The limited lanes may have as many leases at once as [`LIMITS`] allows.
pub(crate) const FREE: &str = "free";
pub(crate) const LIMITED: &str = "limited";
pub(crate) const SINGLE: &str = "single";
/// Its tasks are claimed and settled directly, without checking lease expiry.
pub(crate) const BY_HAND: &str = "by-hand";
pub(crate) const LANES: [&str; 4] = [FREE, LIMITED, SINGLE, BY_HAND];
pub(crate) const LIMITS: [(&str, u32); 2] = [(LIMITED, 4), (SINGLE, 1)];

/// Far more than the faults of a run can use up: every task completes in the end.
pub(crate) const MOST_ATTEMPTS: u32 = 40;
const BACKOFF_MS: u64 = 50;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// A task to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskSpec {
    pub(crate) nth: u64,
    pub(crate) lane: &'static str,
    pub(crate) plan: Plan,
    /// Whether the request has an idempotency key; otherwise the id of the task identifies it.
    pub(crate) keyed: bool,
}

/// What its handlers do. Sent as the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Plan {
    Complete,
    /// Fails this many attempts first.
    FailFirst(u32),
    /// Takes longer than a lease without renewals.
    Slowly,
    /// Settles its first attempt when the lease has expired, and the second attempt runs.
    StallFirst,
}

impl TaskSpec {
    /// The last tasks are one of each lane, so that every lane can be created before the run.
    pub(crate) fn new(seed: u64, nth: u64, tasks: u64) -> Self {
        let mut random = Random::new(seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let lane = match random.below(100) {
            0..=1 => SINGLE,
            2..=13 => LIMITED,
            14..=29 => BY_HAND,
            _ => FREE,
        };
        let plan = match random.below(1_000) {
            0..=1 => Plan::Slowly,
            2..=16 if lane == BY_HAND => Plan::StallFirst,
            17..=66 => Plan::FailFirst(1),
            67..=76 => Plan::FailFirst(2),
            _ => Plan::Complete,
        };
        let keyed = random.percent(50);
        let spec = Self { nth, lane, plan, keyed };
        match usize::try_from(tasks - nth - 1).ok().and_then(|from_end| LANES.get(from_end)) {
            Some(lane) => Self { lane, plan: Plan::Complete, ..spec },
            None => spec,
        }
    }

    /// A caller with a key may propose another id each time: the first one is stored.
    pub(crate) fn new_task(&self, asker: &str) -> NewTask {
        let id = if self.keyed {
            format!("{:07}-{asker}", self.nth)
        } else {
            format!("{:07}", self.nth)
        };
        let mut new = NewTask::new(id, KIND);
        new.lane = self.lane.into();
        new.payload = Some(Payload::json(
            serde_json::to_string(&self.plan).expect("a plan can be serialized"),
        ));
        new.policy.retry = Some(RetryPolicy::fixed(MOST_ATTEMPTS, BACKOFF_MS));
        let key = || format!("request {}", self.nth);
        new.idempotency =
            self.keyed.then(|| IdempotencyWindow { key: key().into(), window_ms: DAY_MS });
        new
    }
}

/// The number of the task with this id.
pub(crate) fn nth_of(id: &str) -> Option<u64> {
    id.split('-').next()?.parse().ok()
}
