use serde::{Deserialize, Serialize};

use crate::digest::Digester;
use crate::limits;
use crate::rejection::Rejection;
use crate::task::Task;
use crate::time::Timestamp;

const HOUR_MS: u64 = 3_600_000;

/// The execution policy of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_timeout_ms: Option<u64>,
    pub max_lost_leases: u32,
    pub max_replays: u32,
    pub retention_ms: u64,
    /// Accept a write under an expired lease, if no other worker has claimed the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_expired_lease: bool,
}

/// When a failed attempt is retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The maximum number of attempts, including the first.
    pub max_attempts: u32,
    pub backoff: Backoff,
    pub retry_on: Vec<FailureClass>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    Fixed {
        ms: u64,
    },
    /// Grows by `step_ms` with each attempt, up to `cap_ms`.
    Linear {
        step_ms: u64,
        cap_ms: u64,
    },
    /// Doubles from `base_ms` up to `cap_ms`. Jitter subtracts up to that percentage.
    Exponential {
        base_ms: u64,
        cap_ms: u64,
        jitter_percent: u8,
    },
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    Transient,
    Permanent,
    Crash,
    Timeout,
    Cancelled,
}

/// The retry decision of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The retry policy decides.
    #[default]
    Policy,
    /// After this delay, for any failure class, while attempts are left.
    After { ms: u64 },
    /// Never retry.
    Never,
}

impl FailureClass {
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureClass::Transient => "transient",
            FailureClass::Permanent => "permanent",
            FailureClass::Crash => "crash",
            FailureClass::Timeout => "timeout",
            FailureClass::Cancelled => "cancelled",
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retry: None,
            attempt_timeout_ms: None,
            max_lost_leases: limits::DEFAULT_MAX_LOST_LEASES,
            max_replays: limits::DEFAULT_MAX_REPLAYS,
            retention_ms: limits::DEFAULT_RETENTION_MS,
            accept_expired_lease: false,
        }
    }
}

impl Policy {
    /// The policy of a stored body without one. Part of the format: unlike the default for new
    /// tasks, it must never change.
    pub(crate) fn stored_default() -> Self {
        Self {
            retry: None,
            attempt_timeout_ms: None,
            max_lost_leases: 100,
            max_replays: 100,
            retention_ms: 604_800_000,
            accept_expired_lease: false,
        }
    }

    pub(crate) fn is_stored_default(&self) -> bool {
        *self == Self::stored_default()
    }
}

impl RetryPolicy {
    /// `max_attempts` attempts with a delay of `ms`, after failures that may be temporary.
    pub fn fixed(max_attempts: u32, ms: u64) -> Self {
        Self { max_attempts, backoff: Backoff::Fixed { ms }, retry_on: Self::retryable_classes() }
    }

    /// Attempts with a delay that grows by `ms` each time, up to an hour.
    pub fn linear(max_attempts: u32, ms: u64) -> Self {
        let backoff = Backoff::Linear { step_ms: ms, cap_ms: HOUR_MS.max(ms) };
        Self { max_attempts, backoff, retry_on: Self::retryable_classes() }
    }

    /// Attempts with a delay that doubles from one second up to an hour.
    pub fn exponential(max_attempts: u32) -> Self {
        let backoff = Backoff::Exponential { base_ms: 1_000, cap_ms: HOUR_MS, jitter_percent: 20 };
        Self { max_attempts, backoff, retry_on: Self::retryable_classes() }
    }

    fn retryable_classes() -> Vec<FailureClass> {
        vec![FailureClass::Transient, FailureClass::Crash, FailureClass::Timeout]
    }

    /// Checks it against the limits.
    pub fn check(&self) -> Result<(), Rejection> {
        limits::ATTEMPTS.check(self.max_attempts)?;
        match self.backoff {
            Backoff::Fixed { ms } => limits::BACKOFF_MS.check(ms),
            Backoff::Linear { step_ms, cap_ms } => {
                limits::BACKOFF_MS.check(step_ms)?;
                limits::BACKOFF_MS.check(cap_ms)
            }
            Backoff::Exponential { base_ms, cap_ms, jitter_percent } => {
                limits::BACKOFF_MS.check(base_ms)?;
                limits::BACKOFF_MS.check(cap_ms)?;
                limits::JITTER.check(jitter_percent)
            }
        }
    }
}

impl Backoff {
    /// The delay after this many attempts in milliseconds, before jitter.
    pub fn after(self, attempts: u32) -> u64 {
        match self {
            Backoff::Fixed { ms } => ms,
            Backoff::Linear { step_ms, cap_ms } => {
                step_ms.saturating_mul(u64::from(attempts.max(1))).min(cap_ms)
            }
            Backoff::Exponential { base_ms, cap_ms, .. } => {
                let doublings = attempts.saturating_sub(1).min(40);
                base_ms.saturating_mul(1 << doublings).min(cap_ms)
            }
        }
    }
}

impl Policy {
    /// The policy for a workflow: its turns are short, so a turn that crashes its workers fails
    /// after fewer lost leases.
    #[must_use]
    pub fn of_workflow(self) -> Self {
        Self { max_lost_leases: limits::DEFAULT_TURN_LOST_LEASES, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        if let Some(retry) = &self.retry {
            retry.check()?;
        }
        if let Some(timeout_ms) = self.attempt_timeout_ms {
            limits::TIMEOUT_MS.check(timeout_ms)?;
        }
        limits::LOST_LEASES.check(self.max_lost_leases)?;
        limits::REPLAYS.check(self.max_replays)?;
        limits::RETENTION_MS.check(self.retention_ms)
    }

    /// The maximum number of attempts per execution. Without a retry policy a reported failure is
    /// final, but a crash is retried, up to the limit of lost leases.
    pub(crate) fn max_attempts(&self) -> u32 {
        self.retry.as_ref().map_or(self.max_lost_leases + 1, |retry| retry.max_attempts)
    }

    fn retries(&self, class: FailureClass) -> bool {
        match &self.retry {
            Some(retry) => retry.retry_on.contains(&class),
            None => class == FailureClass::Crash,
        }
    }
}

impl Task {
    pub(crate) fn attempts_left(&self) -> bool {
        self.attempts < self.policy.max_attempts()
    }

    /// When the next attempt may start after a failure of this class; none if there is none.
    pub(crate) fn next_attempt_at(
        &self,
        class: FailureClass,
        retry: Retry,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if !self.attempts_left() {
            return None;
        }
        match retry {
            Retry::Never => None,
            Retry::After { ms } => Some(now.plus_ms(ms)),
            Retry::Policy if !self.policy.retries(class) => None,
            Retry::Policy => Some(now.plus_ms(self.backoff_ms())),
        }
    }

    fn backoff_ms(&self) -> u64 {
        let Some(retry) = &self.policy.retry else { return 0 };
        let full_ms = retry.backoff.after(self.attempts);
        let Backoff::Exponential { jitter_percent, .. } = retry.backoff else { return full_ms };
        let max_jitter_ms = full_ms.saturating_mul(u64::from(jitter_percent)) / 100;
        full_ms - self.jitter(max_jitter_ms)
    }

    /// A pseudo-random number from 0 to `most` that depends on the task and the attempt.
    fn jitter(&self, most: u64) -> u64 {
        let digest = Digester::new("jitter")
            .part(self.id.as_str().as_bytes())
            .number(i64::from(self.attempts))
            .finish();
        digest.spread() % (most + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::task;

    #[test]
    fn exponential_backoff_doubles_up_to_its_cap() {
        let mut task = task("t");
        for (attempts, jitter_percent, shortest, longest) in [
            (1, 0, 1_000, 1_000),
            (2, 0, 2_000, 2_000),
            (3, 0, 4_000, 4_000),
            (4, 0, 5_000, 5_000),
            (99, 0, 5_000, 5_000),
            (3, 50, 2_000, 4_000),
        ] {
            let backoff = Backoff::Exponential { base_ms: 1_000, cap_ms: 5_000, jitter_percent };
            task.policy.retry = Some(RetryPolicy { backoff, ..RetryPolicy::fixed(100, 0) });
            task.attempts = attempts;
            let ms = task.backoff_ms();
            assert!((shortest..=longest).contains(&ms), "attempt {attempts}: {ms} ms");
        }
    }

    #[test]
    fn linear_backoff_grows_by_its_step_up_to_its_cap() {
        let mut task = task("t");
        let backoff = Backoff::Linear { step_ms: 1_000, cap_ms: 3_500 };
        task.policy.retry = Some(RetryPolicy { backoff, ..RetryPolicy::fixed(100, 0) });
        for (attempts, ms) in [(1, 1_000), (2, 2_000), (3, 3_000), (4, 3_500), (99, 3_500)] {
            task.attempts = attempts;
            assert_eq!(task.backoff_ms(), ms, "attempt {attempts}");
        }
        let named = RetryPolicy::linear(3, 500).backoff;
        assert_eq!(named, Backoff::Linear { step_ms: 500, cap_ms: HOUR_MS });
        assert!(RetryPolicy::linear(3, u64::MAX).check().is_err());
    }

    #[test]
    fn jitter_spreads() {
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..50 {
            seen.insert(task(&format!("t{n}")).jitter(1_000));
        }
        assert!(seen.len() > 40, "{seen:?}");
        assert!(seen.iter().all(|&ms| ms <= 1_000));
    }

    #[test]
    fn which_failures_are_retried() {
        use FailureClass::{Cancelled, Crash, Permanent, Timeout, Transient};
        let now = Timestamp::from_millis(1_000);
        let fixed = Some(RetryPolicy::fixed(2, 60_000));
        let later = Some(now.plus_ms(60_000));
        let soon = Some(now.plus_ms(5));
        for (policy, attempts, class, retry, expected) in [
            (fixed.clone(), 1, Transient, Retry::Policy, later),
            (fixed.clone(), 1, Timeout, Retry::Policy, later),
            (fixed.clone(), 1, Crash, Retry::Policy, later),
            (fixed.clone(), 1, Permanent, Retry::Policy, None),
            (fixed.clone(), 1, Cancelled, Retry::Policy, None),
            (fixed.clone(), 2, Transient, Retry::Policy, None),
            (fixed.clone(), 1, Permanent, Retry::After { ms: 5 }, soon),
            (fixed.clone(), 2, Transient, Retry::After { ms: 5 }, None),
            (fixed, 1, Transient, Retry::Never, None),
            (None, 1, Transient, Retry::Policy, None),
            (None, 1, Crash, Retry::Policy, Some(now)),
            (None, 1, Transient, Retry::After { ms: 5 }, soon),
        ] {
            let mut task = task("t");
            task.policy.retry = policy.clone();
            task.attempts = attempts;
            let found = task.next_attempt_at(class, retry, now);
            assert_eq!(found, expected, "{policy:?} attempt {attempts} {class:?} {retry:?}");
        }
    }
}
