//! Explains limits that a task waits for.

use windlass::{LimitKind, Rate, Task, Timestamp, Why};

use crate::duration::distance;
use crate::output::printable;
use crate::quota::{limits, window};
use crate::task::why::explain::Explanation;

/// Why a task is blocked by its concurrency limit, or by an exceeded quota.
pub(super) fn limited(task: &Task, why: &Why, now: Timestamp) -> Explanation {
    match why {
        Why::Gated { gate, limit, rate, running, waiting, opens_at } => {
            let (kind, name) = gate.as_ref().map_or(("key", ""), |g| (g.kind().as_str(), g.name()));
            let name = printable(name);
            let allowed = limits(*limit, *rate);
            let rest = match waiting.saturating_sub(1) {
                0 => String::new(),
                others => format!(" {others} more wait there."),
            };
            let (id, then) = (&task.id, opens(*opens_at, now));
            let sentence = format!(
                "Task {id} is blocked by {kind} {name}, which runs {allowed}: {running} running or \
                 admitted{then}.{rest}"
            );
            let more = wider(*limit, *rate, *opens_at);
            let help = format!("windlass quota set --{kind} {name} {more} allows more.");
            Explanation { sentence, help: Some(help) }
        }
        Why::QuotaSpent { kind, limit, rate, running, opens_at } => {
            let (id, lane) = (&task.id, &task.lane);
            let (of, option) = match kind {
                LimitKind::Lane => (format!("lane {lane}"), format!("--lane {lane}")),
                _ => (format!("tenant {}", task.tenant), "--all".to_owned()),
            };
            let (allowed, then) = (limits(*limit, *rate), opens(*opens_at, now));
            let sentence = format!(
                "Task {id} waits because {of} runs {allowed}, and that is used up: {running} \
                 running{then}."
            );
            let more = wider(*limit, *rate, *opens_at);
            let help = format!("windlass quota set {option} {more} allows more.");
            Explanation { sentence, help: Some(help) }
        }
        other => unreachable!("{other:?} is not a limit"),
    }
}

/// The options that raise the blocking limit. The other limit is repeated, or it would be cleared.
fn wider(limit: Option<u32>, rate: Option<Rate>, opens_at: Option<Timestamp>) -> String {
    let rate = rate.map(|rate| {
        let starts = if opens_at.is_some() { "N".to_owned() } else { rate.starts.to_string() };
        format!("--rate {starts}/{}", window(rate))
    });
    let limit = match (limit, opens_at) {
        (Some(limit), Some(_)) => Some(format!("--limit {limit}")),
        (None, Some(_)) => None,
        (_, None) => Some("--limit N".to_owned()),
    };
    limit.into_iter().chain(rate).collect::<Vec<_>>().join(" ")
}

/// When the limit next admits a task, if only time is needed.
fn opens(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(String::new, |at| format!("; the next may start {}", distance(at, now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_a_limit_retains_the_other_limit() {
        let (at, rate) =
            (Some(Timestamp::default()), |starts, window_ms| Some(Rate { starts, window_ms }));
        for (limit, rate, opens_at, expected) in [
            (Some(1), None, None, "--limit N"),
            (Some(3), rate(20, 60_000), None, "--limit N --rate 20/1m"),
            (Some(3), rate(20, 60_000), at, "--limit 3 --rate N/1m"),
            (None, rate(20, 1_500), at, "--rate N/1500ms"),
        ] {
            assert_eq!(wider(limit, rate, opens_at), expected);
        }
    }
}
