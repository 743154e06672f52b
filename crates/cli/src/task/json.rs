//! The JSON of a task. Its fields are documented in docs/operate.

use serde_json::{Value, json};
use windlass::{Backoff, Lifecycle, Policy, Task};

use crate::output::time;

pub(crate) fn task_json(task: &Task) -> Value {
    let mut fields = json!({
        "id": task.id,
        "tenant": task.tenant,
        "kind": task.kind,
        "lane": task.lane,
        "state": task.lifecycle.public(),
        "priority": task.priority,
        "attempts": task.attempts,
        "max_attempts": task.policy.retry.as_ref().map(|retry| retry.max_attempts),
        "lost_leases": task.lost_leases,
        "claims": task.claims,
        "execution": task.execution,
        "created_at": time(task.created_at),
        "started_at": time(task.started_at),
        "deadline": time(task.deadline),
        "labels": task.labels,
        "capabilities": task.route.capabilities().collect::<Vec<_>>(),
        "tag": task.route.tag(),
        "payload_bytes": task.input_bytes,
        "parent": task.parent,
        "progress": task.progress.as_ref().map(|progress| json!({
            "percent": progress.percent,
            "message": progress.message,
            "at": time(progress.at),
        })),
    });
    if let (Value::Object(fields), Value::Object(lifecycle_fields)) =
        (&mut fields, lifecycle(&task.lifecycle))
    {
        fields.extend(lifecycle_fields);
    }
    fields
}

/// The fields of the current state only.
fn lifecycle(lifecycle: &Lifecycle) -> Value {
    match lifecycle {
        Lifecycle::Waiting(readiness) | Lifecycle::Blocked(readiness) => {
            json!({ "ready_at": time(readiness.ready_at) })
        }
        Lifecycle::Granted { readiness, worker, until } => json!({
            "ready_at": time(readiness.ready_at),
            "granted_to": worker,
            "until": time(*until),
        }),
        Lifecycle::Suspended(suspension) => json!({ "suspended": {
            "since": time(suspension.since),
            "reason": suspension.reason,
            "condition": suspension.condition,
            "timeout_at": time(suspension.timeout.map(|timeout| timeout.at)),
            "on_timeout": suspension.timeout.map(|timeout| timeout.action),
            "escalated_at": time(suspension.escalated_at),
        } }),
        Lifecycle::WaitingChildren { since, .. } => json!({ "since": time(*since) }),
        Lifecycle::Delayed { until, after, .. } => {
            json!({ "until": time(*until), "after_failure": after })
        }
        Lifecycle::Active(lease) => json!({ "lease": {
            "worker": lease.worker,
            "expires_at": time(lease.expires_at),
            "attempt": lease.attempt.as_ref().map(|attempt| attempt.number),
            "began_at": time(lease.attempt.as_ref().map(|attempt| attempt.began_at)),
            "timeout_at": time(lease.attempt.as_ref().and_then(|attempt| attempt.timeout_at)),
        } }),
        Lifecycle::Completed { at } | Lifecycle::Expired { at } => json!({ "ended_at": time(*at) }),
        Lifecycle::Failed { at, class, reason } => {
            json!({ "ended_at": time(*at), "class": class, "reason": reason })
        }
        Lifecycle::Cancelled { at, reason } => {
            json!({ "ended_at": time(*at), "reason": reason })
        }
    }
}

pub(super) fn policy_json(policy: &Policy) -> Value {
    let retry = policy.retry.as_ref().map(|retry| {
        let (backoff, backoff_ms, backoff_cap_ms) = match retry.backoff {
            Backoff::Fixed { ms } => ("fixed", ms, None),
            Backoff::Linear { step_ms, cap_ms } => ("linear", step_ms, Some(cap_ms)),
            Backoff::Exponential { base_ms, cap_ms, .. } => ("exponential", base_ms, Some(cap_ms)),
        };
        json!({
            "max_attempts": retry.max_attempts,
            "backoff": backoff,
            "backoff_ms": backoff_ms,
            "backoff_cap_ms": backoff_cap_ms,
            "retry_on": retry.retry_on,
        })
    });
    json!({
        "retry": retry,
        "attempt_timeout_ms": policy.attempt_timeout_ms,
        "max_lost_leases": policy.max_lost_leases,
        "max_replays": policy.max_replays,
        "retention_ms": policy.retention_ms,
        "accept_expired_lease": policy.accept_expired_lease,
    })
}
