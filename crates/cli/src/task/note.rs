//! Short descriptions of a task, for lists.

use windlass::{ChildCounts, Lifecycle, Task, Timestamp};

use crate::duration::{brief, distance};
use crate::output::one_line;
use crate::quota::noun;

/// The attempts so far, and the maximum if the task has one.
pub(crate) fn attempts(task: &Task) -> String {
    match &task.policy.retry {
        Some(retry) => format!("{} of {}", task.attempts, retry.max_attempts),
        None => task.attempts.to_string(),
    }
}

/// The number of children by state: `2 open, 1 completed`.
pub(crate) fn child_counts(counts: &ChildCounts) -> String {
    let ChildCounts { open, completed, failed, cancelled, expired } = *counts;
    let all = [
        (open, "open"),
        (completed, "completed"),
        (failed, "failed"),
        (cancelled, "cancelled"),
        (expired, "expired"),
    ];
    let some = all.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, state)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

/// Since when the task is in its state, or until when.
pub(crate) fn since(task: &Task, now: Timestamp) -> String {
    match &task.lifecycle {
        Lifecycle::Waiting(readiness)
        | Lifecycle::Blocked(readiness)
        | Lifecycle::Granted { readiness, .. } => distance(readiness.ready_at, now),
        Lifecycle::Suspended(suspension) => distance(suspension.since, now),
        Lifecycle::WaitingChildren { since, .. } => distance(*since, now),
        Lifecycle::Delayed { until, .. } if *until > now => {
            format!("for {}", brief(now.ms_until(*until)))
        }
        Lifecycle::Delayed { until, .. } => format!("due {}", distance(*until, now)),
        Lifecycle::Active(lease) => match &lease.attempt {
            Some(run) => distance(run.began_at, now),
            None => "not begun".to_owned(),
        },
        Lifecycle::Completed { at }
        | Lifecycle::Failed { at, .. }
        | Lifecycle::Cancelled { at, .. }
        | Lifecycle::Expired { at } => distance(*at, now),
    }
}

/// A one-line note on the current state.
pub(crate) fn first_line(task: &Task) -> String {
    match &task.lifecycle {
        Lifecycle::Waiting(readiness) if readiness.lost_epoch.is_some() => {
            "its last lease was lost".to_owned()
        }
        Lifecycle::Blocked(_) => task.limit_key.as_ref().map_or_else(String::new, |key| {
            format!("blocked by {} {}", noun(key.kind()), key.name())
        }),
        Lifecycle::Granted { worker, .. } => format!("granted to {worker}"),
        Lifecycle::Suspended(suspension) => suspension.reason.as_str().replace('_', " "),
        Lifecycle::Delayed { after: Some(class), .. } => {
            format!("retry after a {} failure", class.as_str())
        }
        Lifecycle::Active(lease) => match &task.progress {
            Some(progress)
                if lease
                    .attempt
                    .as_ref()
                    .is_some_and(|attempt| attempt.began_at <= progress.at) =>
            {
                let message = one_line(&progress.message);
                format!("{}: {}% {message}", lease.worker, progress.percent).trim_end().to_owned()
            }
            _ => lease.worker.to_string(),
        },
        Lifecycle::Failed { class, reason, .. } => {
            format!("{}: {}", class.as_str(), one_line(reason))
        }
        Lifecycle::Cancelled { reason, .. } => one_line(reason),
        Lifecycle::Waiting(_)
        | Lifecycle::WaitingChildren { .. }
        | Lifecycle::Delayed { .. }
        | Lifecycle::Completed { .. }
        | Lifecycle::Expired { .. } => String::new(),
    }
}
