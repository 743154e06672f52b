use crate::rejection::Rejection;
use crate::task::{ActiveAttempt, Lease, Task};
use crate::time::Timestamp;

/// Begins an attempt and counts it. An attempt that has begun is returned unchanged.
pub(crate) fn begin_attempt(
    task: &mut Task,
    lease: &mut Lease,
    now: Timestamp,
) -> Result<ActiveAttempt, Rejection> {
    if let Some(attempt) = &lease.attempt {
        return Ok(attempt.clone());
    }
    if !task.attempts_left() {
        return Err(Rejection::AttemptsExhausted { max: task.policy.max_attempts() });
    }
    task.count_attempt();
    task.progress = None;
    task.resumption = None;
    let timeout_at = task.policy.attempt_timeout_ms.map(|ms| now.plus_ms(ms));
    let attempt = ActiveAttempt { number: task.attempts, began_at: now, timeout_at };
    lease.attempt = Some(attempt.clone());
    Ok(attempt)
}
