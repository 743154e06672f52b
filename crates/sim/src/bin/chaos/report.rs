//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::fault::Kind;
use crate::judge::Case;
use crate::line::{How, Line};

/// Rejections because of an ended lease.
const STALE: [&str; 4] = ["stale_fence", "lease_expired", "not_leased", "already_terminal"];

#[derive(Debug)]
pub(crate) struct Figures {
    rows: Vec<(String, String, u64)>,
}

impl Figures {
    pub(crate) fn of(
        case: &Case,
        faults: &BTreeMap<Kind, u64>,
        lives: usize,
        restarts: u64,
        elapsed: Duration,
    ) -> Self {
        let mut figures = Self { rows: Vec::new() };
        figures.add("faults", "faults", faults.values().sum());
        for (kind, count) in faults {
            let (key, name) = (format!("{kind:?}"), kind.name());
            figures.add(&format!("faults_{}", key.to_lowercase()), &format!("  {name}"), *count);
        }
        let count = |such: fn(&Line) -> bool| case.lines().filter(|line| such(line)).count() as u64;
        let ended = |name: &str| case.log_state.ended(name) as u64;
        let stale = |line: &Line| matches!(line, Line::Rejected { code, .. } if is_stale(code));
        for (key, name, value) in [
            ("process_lives", "process starts", lives as u64),
            ("tasks", "tasks", case.log_state.tasks.len() as u64),
            ("completions", "completions", ended("completed")),
            ("retries", "attempts that failed and were retried", ended("retry_scheduled")),
            ("leases_lost", "leases lost", ended("lease_lost")),
            ("released", "leases released", ended("released")),
            ("events", "log events", case.view.events.len() as u64),
            ("subscriber_restarts", "restarts of the subscriber", restarts),
            ("created_acks", "creates acknowledged", count(is_created)),
            ("duplicates", "  as duplicates", count(is_duplicate)),
            (
                "claim_acks",
                "claims acknowledged",
                count(|line| matches!(line, Line::Claimed { .. })),
            ),
            ("complete_acks", "completes acknowledged", count(is_complete)),
            ("stale", "stale answers", case.lines().filter(|line| stale(line)).count() as u64),
            ("over", "leases expired before an answer", count(is_over)),
            ("looked_up", "unknown outcomes looked up", count(is_looked_up)),
            ("looked_up_committed", "  that were committed", count(is_committed)),
            ("lookups_unanswered", "lookups without an answer", count(is_unanswered)),
            ("unknown", "outcome_unknown answers", count(|line| *line == Line::Unknown)),
            ("overlap_us", "largest step back in time of a task, us", case.overlap_us()),
            ("elapsed_ms", "elapsed, ms", u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
        ] {
            figures.add(key, name, value);
        }
        let worked = case.lines().filter_map(|line| match line {
            Line::Worked { batches, conflicts, sweeps } => Some([*batches, *conflicts, *sweeps]),
            _ => None,
        });
        let last = worked.fold([0; 3], |sum, more| [0, 1, 2].map(|at| sum[at] + more[at]));
        figures.add("batches", "batches of the last lives", last[0]);
        figures.add("conflicts", "  retried after a conflict", last[1]);
        figures.add("sweeps", "  with a sweep", last[2]);
        for (name, load) in &case.log_state.lanes {
            let limit = load.limit.map_or("none".into(), |limit| limit.to_string());
            let shown = format!("most leases of lane {name}, limit {limit}");
            figures.add(&format!("most_{}", name.replace('-', "_")), &shown, load.most.into());
        }
        figures
    }

    fn add(&mut self, key: &str, name: &str, value: u64) {
        self.rows.push((key.to_owned(), name.to_owned(), value));
    }

    pub(crate) fn table(&self) -> String {
        let width = self.rows.iter().map(|(_, name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (_, name, value) in &self.rows {
            // Writing to a text does not fail.
            let _ = writeln!(text, "{name:<width$}  {value:>9}");
        }
        text
    }

    pub(crate) fn json(&self, passed: bool, reproduce: &str) -> String {
        let mut object = serde_json::Map::new();
        object.insert("passed".into(), passed.into());
        for (key, _, value) in &self.rows {
            object.insert(key.clone(), (*value).into());
        }
        object.insert("reproduce".into(), reproduce.into());
        serde_json::Value::from(object).to_string()
    }
}

fn is_stale(code: &str) -> bool {
    STALE.contains(&code)
}

fn is_created(line: &Line) -> bool {
    matches!(line, Line::Created { .. })
}

fn is_duplicate(line: &Line) -> bool {
    matches!(line, Line::Created { duplicate: true, .. })
}

fn is_complete(line: &Line) -> bool {
    matches!(line, Line::Settled { how: How::Complete, .. })
}

fn is_over(line: &Line) -> bool {
    matches!(line, Line::Over { .. } | Line::Lost { .. })
}

fn is_looked_up(line: &Line) -> bool {
    matches!(line, Line::LookedUp { committed: Some(_) })
}

fn is_committed(line: &Line) -> bool {
    *line == Line::LookedUp { committed: Some(true) }
}

fn is_unanswered(line: &Line) -> bool {
    *line == Line::LookedUp { committed: None }
}
