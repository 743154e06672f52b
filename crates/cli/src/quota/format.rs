//! Limits as text and as JSON.

use serde_json::{Value, json};
use windlass::{ConcurrencyLimit, LimitKind, Rate, Timestamp};

use crate::duration::{brief, distance, parse};
use crate::output::time;

/// `at most 3 at once`, `at most 20 starts per 1s`, or both.
pub(crate) fn limits(limit: Option<u32>, rate: Option<Rate>) -> String {
    let limit = limit.map(|limit| format!("at most {limit} at once"));
    let rate = rate.map(|rate| {
        let starts = if rate.limit == 1 { "start" } else { "starts" };
        format!("at most {} {starts} per {}", rate.limit, window(rate))
    });
    match (limit, rate) {
        (Some(limit), Some(rate)) => format!("{limit}, {rate}"),
        (limit, rate) => limit.or(rate).unwrap_or_else(|| "no limit".to_owned()),
    }
}

/// The window of a rate as it can be set again, exact to the millisecond.
pub(crate) fn window(rate: Rate) -> String {
    let short = brief(rate.window_ms);
    let ms = parse(&short).map(|parsed| parsed.as_millis());
    if ms == Ok(u128::from(rate.window_ms)) { short } else { format!("{}ms", rate.window_ms) }
}

/// What a limit counts the tasks of: `concurrency key`, `session`, `lane`.
pub(crate) fn noun(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Concurrency => "concurrency key",
        other => other.as_str(),
    }
}

/// When a limit next admits a task, if only time is needed: `in 4s`.
pub(super) fn retry_at(limit: &ConcurrencyLimit, now: Timestamp) -> Option<String> {
    limit.retry_at(now).map(|at| distance(at, now))
}

pub(crate) fn described(limit: &ConcurrencyLimit, now: Timestamp) -> Value {
    json!({
        "kind": limit.kind,
        "name": limit.name,
        "limit": limit.limit,
        "rate": limit.rate,
        "configured": limit.configured,
        "running": limit.running,
        "admitted": limit.admitted,
        "blocked": limit.blocked,
        "started": limit.started(now),
        "retry_at": time(limit.retry_at(now)),
        "owner": limit.owner.as_ref().map(|owner| &owner.worker),
        "owner_expires_at": time(limit.owner.as_ref().map(|owner| owner.expires_at)),
    })
}
