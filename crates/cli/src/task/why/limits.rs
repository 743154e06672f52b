//! Limits that a task waits for.

use windlass::{GateKind, Task, Timestamp, Why};

use crate::duration::distance;
use crate::output::printable;
use crate::quota::limits;
use crate::task::why::explain::Explanation;

/// Why a task is behind its gate, or under a quota that is used up.
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
                "Task {id} is behind {kind} {name}, which runs {allowed}: {running} running or \
                 about to{then}.{rest}"
            );
            let help = format!("windlass quota set --{kind} {name} --limit N allows more.");
            Explanation { sentence, help: Some(help) }
        }
        Why::QuotaSpent { kind, limit, rate, running, opens_at } => {
            let (id, lane) = (&task.id, &task.lane);
            let (of, option) = match kind {
                GateKind::Lane => (format!("lane {lane}"), format!("--lane {lane}")),
                _ => (format!("tenant {}", task.tenant), "--all".to_owned()),
            };
            let (allowed, then) = (limits(*limit, *rate), opens(*opens_at, now));
            let sentence = format!(
                "Task {id} waits because {of} runs {allowed}, and that is used up: {running} \
                 running{then}."
            );
            let help = format!("windlass quota set {option} --limit N allows more.");
            Explanation { sentence, help: Some(help) }
        }
        other => unreachable!("{other:?} is no limit"),
    }
}

/// When time opens it, if time does.
fn opens(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(String::new, |at| format!("; the next may start {}", distance(at, now)))
}
