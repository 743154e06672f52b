//! Explains limits that a task waits for.

use windlass::{LimitKey, LimitKind, Rate, Task, Timestamp, Why};

use crate::duration::distance;
use crate::output::printable;
use crate::quota::{limits, noun, window};
use crate::task::why::explain::Explanation;

/// Why a task is blocked by its concurrency limit, or by an exceeded quota.
pub(super) fn limited(task: &Task, why: &Why, now: Timestamp) -> Explanation {
    match why {
        Why::ConcurrencyLimitReached { key, limit, rate, running, blocked, retry_at } => {
            let kind = key.as_ref().map_or(LimitKind::Concurrency, LimitKey::kind);
            let name = printable(key.as_ref().map_or("", LimitKey::name));
            let (noun, option) = (noun(kind), noun(kind).replace(' ', "-"));
            let allowed = limits(*limit, *rate);
            let rest = match blocked.saturating_sub(1) {
                0 => String::new(),
                others => format!(" {others} more wait there."),
            };
            let (id, then) = (&task.id, retry(*retry_at, now));
            let sentence = format!(
                "Task {id} is blocked by {noun} {name}, which runs {allowed}: {running} running or \
                 admitted{then}.{rest}"
            );
            let more = wider(*limit, *rate, *retry_at);
            let help = format!("windlass quota set --{option} {name} {more} allows more.");
            Explanation { sentence, help: Some(help) }
        }
        Why::QuotaExceeded { kind, limit, rate, running, retry_at } => {
            let (id, lane) = (&task.id, &task.lane);
            let (of, option) = match kind {
                LimitKind::Lane => (format!("lane {lane}"), format!("--lane {lane}")),
                _ => (format!("tenant {}", task.tenant), "--all".to_owned()),
            };
            let (allowed, then) = (limits(*limit, *rate), retry(*retry_at, now));
            let sentence = format!(
                "Task {id} waits because {of} runs {allowed}, and that is used up: {running} \
                 running{then}."
            );
            let more = wider(*limit, *rate, *retry_at);
            let help = format!("windlass quota set {option} {more} allows more.");
            Explanation { sentence, help: Some(help) }
        }
        other => unreachable!("{other:?} is not a limit"),
    }
}

/// The options that raise the blocking limit. The other limit is repeated, or it would be cleared.
fn wider(limit: Option<u32>, rate: Option<Rate>, retry_at: Option<Timestamp>) -> String {
    let rate = rate.map(|rate| {
        let starts = if retry_at.is_some() { "N".to_owned() } else { rate.limit.to_string() };
        format!("--rate {starts}/{}", window(rate))
    });
    let limit = match (limit, retry_at) {
        (Some(limit), Some(_)) => Some(format!("--limit {limit}")),
        (None, Some(_)) => None,
        (_, None) => Some("--limit N".to_owned()),
    };
    limit.into_iter().chain(rate).collect::<Vec<_>>().join(" ")
}

/// When the limit next admits a task, if only time is needed.
fn retry(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(String::new, |at| format!("; the next may start {}", distance(at, now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_a_limit_retains_the_other_limit() {
        let (at, rate) =
            (Some(Timestamp::default()), |limit, window_ms| Some(Rate { limit, window_ms }));
        for (limit, rate, retry_at, expected) in [
            (Some(1), None, None, "--limit N"),
            (Some(3), rate(20, 60_000), None, "--limit N --rate 20/1m"),
            (Some(3), rate(20, 60_000), at, "--limit 3 --rate N/1m"),
            (None, rate(20, 1_500), at, "--rate N/1500ms"),
        ] {
            assert_eq!(wider(limit, rate, retry_at), expected);
        }
    }
}
