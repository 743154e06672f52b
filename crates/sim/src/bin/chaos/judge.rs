//! The rules of a run: each lists its violations.

use std::collections::{BTreeMap, BTreeSet};

use crate::line::{How, Line, Run};
use crate::log_state::{LogState, State};
use crate::reader::{Entry, digest};
use crate::task_spec::nth_of;
use crate::view::View;

/// All that is known of a completed run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub(crate) tasks: u64,
    /// The log of each process.
    pub(crate) logs: Vec<Vec<Line>>,
    pub(crate) view: View,
    /// The log events that the subscriber read during the run.
    pub(crate) seen: Vec<Entry>,
    pub(crate) log_state: LogState,
}

type Rule = (&'static str, fn(&Case) -> Vec<String>);

const RULES: &[Rule] = &[
    ("no process reports trouble", unexpected),
    ("the log has no gaps", gapless),
    ("a log event follows from those before it", |case| case.log_state.broken.clone()),
    ("a lane has no more leases than its limit", |case| case.log_state.over_limit.clone()),
    ("the rows agree with the log", rows),
    ("every task is completed once", completed),
    ("nothing is left leased", leased),
    ("an acknowledged create exists, once per request", creates),
    ("a claimed task was leased to this worker alone", claims),
    ("an acknowledged settle is in the log under its fence", settles),
    ("one completion of a task is acknowledged", completions),
    ("a rejected settle did not happen", rejections),
    ("only submitted settles happened", strays),
    ("a result is that of the completing lease", results),
    ("the subscriber read every log event in order", seen),
];

/// The maximum number of examples of a broken rule.
const EXAMPLES: usize = 10;

/// All violations of all rules.
pub(crate) fn broken(case: &Case) -> Vec<String> {
    let mut found = Vec::new();
    for (name, rule) in RULES {
        let all = rule(case);
        let more = all.len().saturating_sub(EXAMPLES);
        found.extend(all.into_iter().take(EXAMPLES).map(|what| format!("{name}: {what}")));
        if more > 0 {
            found.push(format!("{name}: {more} more"));
        }
    }
    found
}

impl Case {
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.logs.iter().flatten()
    }

    /// The most, in microseconds, by which a log event of a task is earlier than the one before it.
    /// Batches of different nodes overlap, and each uses its start time.
    pub(crate) fn overlap_us(&self) -> u64 {
        let mut last = BTreeMap::<&str, i64>::new();
        let mut most = 0;
        for event in self.view.events.iter().filter(|event| !event.task.is_empty()) {
            let before = last.insert(&event.task, event.at).unwrap_or(event.at);
            most = most.max(before - event.at);
        }
        most.unsigned_abs()
    }

    fn asked(&self) -> BTreeSet<(&Run, How)> {
        let asked = self.lines().filter_map(|line| match line {
            Line::SettleRequested { run, how } => Some((run, *how)),
            _ => None,
        });
        asked.collect()
    }
}

fn unexpected(case: &Case) -> Vec<String> {
    let lines = case.lines().filter(|line| matches!(line, Line::Unexpected(_)));
    let mut found: Vec<String> = lines.map(|line| format!("{line:?}")).collect();
    // The first log is that of the parent, which writes no `Closed` line.
    for (process, log) in case.logs.iter().enumerate().skip(1) {
        if log.last() != Some(&Line::Closed) {
            found.push(format!("process {process} was not closed"));
        }
    }
    found
}

fn gapless(case: &Case) -> Vec<String> {
    let numbered = (1..).zip(&case.view.events);
    let wrong = numbered.filter(|(number, event)| event.seq != *number);
    wrong.map(|(number, event)| format!("log event {} instead of {number}", event.seq)).collect()
}

fn rows(case: &Case) -> Vec<String> {
    let mut found = Vec::new();
    for (id, row) in &case.view.tasks {
        let same = case.log_state.tasks.get(id).is_some_and(|task| {
            let epoch = task.claims == 0 || task.epoch == row.epoch;
            let counts = (task.claims, task.attempts) == (row.claims, row.attempts);
            task.state.name() == row.state && epoch && counts
        });
        if !same {
            found
                .push(format!("{id} is {row:?}, the log gives {:?}", case.log_state.tasks.get(id)));
        }
    }
    let gone = case.log_state.tasks.keys().filter(|id| !case.view.tasks.contains_key(*id));
    found.extend(gone.map(|id| format!("{id} has no row")));
    found
}

fn completed(case: &Case) -> Vec<String> {
    let not = case.log_state.tasks.iter().filter(|(_, task)| task.state != State::Completed);
    let mut found: Vec<String> = not.map(|(id, task)| format!("{id} is {task:?}")).collect();
    let (tasks, times) =
        (case.log_state.tasks.len() as u64, case.log_state.ended("completed") as u64);
    if (tasks, times) != (case.tasks, case.tasks) {
        found.push(format!("{times} completions of {tasks} tasks, not of {}", case.tasks));
    }
    found
}

fn leased(case: &Case) -> Vec<String> {
    let active = case.view.tasks.iter().filter(|(_, row)| row.state == "active");
    let mut found: Vec<String> = active.map(|(id, row)| format!("{id}: {row:?}")).collect();
    for (name, lane) in &case.view.lanes {
        if let Some(limit) = lane.concurrency.as_ref().filter(|limit| limit.running > 0) {
            found.push(format!("lane {name} counts {} leases", limit.running));
        }
    }
    found
}

fn creates(case: &Case) -> Vec<String> {
    let mut ids = BTreeMap::<u64, BTreeSet<&str>>::new();
    for id in case.view.tasks.keys() {
        ids.entry(nth_of(id).unwrap_or(u64::MAX)).or_default().insert(id);
    }
    let mut found = Vec::new();
    for line in case.lines() {
        if let Line::Created { nth, id, .. } = line {
            if !case.view.tasks.contains_key(id) {
                found.push(format!("{line:?}, but it does not exist"));
            }
            ids.entry(*nth).or_default().insert(id);
        }
    }
    let twice = ids.iter().filter(|(_, ids)| ids.len() != 1);
    found.extend(twice.map(|(nth, ids)| format!("request {nth} has {ids:?}")));
    let strange = ids.keys().filter(|nth| **nth >= case.tasks);
    found.extend(strange.map(|nth| format!("request {nth} was never made")));
    found
}

fn claims(case: &Case) -> Vec<String> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for line in case.lines() {
        let Line::Claimed { run, attempt, worker } = line else { continue };
        let lease = case.log_state.runs.get(run);
        let same =
            lease.is_some_and(|lease| lease.worker == *worker && lease.attempt == Some(*attempt));
        if !same || !known.insert(run) {
            found.push(format!("{line:?}, the log has {lease:?}"));
        }
    }
    found
}

fn settles(case: &Case) -> Vec<String> {
    let mut found = Vec::new();
    for line in case.lines() {
        let Line::Settled { run, how } = line else { continue };
        let end = case.log_state.end_of(run);
        if end != Some(end_by(*how)) {
            found.push(format!("{line:?}, the log has {end:?}"));
        }
    }
    found
}

const fn end_by(how: How) -> &'static str {
    match how {
        How::Complete => "completed",
        How::Fail => "retry_scheduled",
        How::Release => "released",
    }
}

fn completions(case: &Case) -> Vec<String> {
    let mut runs = BTreeMap::<&str, BTreeSet<u64>>::new();
    for line in case.lines() {
        if let Line::Settled { run, how: How::Complete } = line {
            runs.entry(&run.id).or_default().insert(run.epoch);
        }
    }
    let twice = runs.iter().filter(|(_, epochs)| epochs.len() > 1);
    twice.map(|(id, epochs)| format!("{id} under {epochs:?}")).collect()
}

/// A completion is remembered forever: its repetition is never rejected. Another settle is
/// remembered until the next one, so it may have been committed if its first answer was lost. A
/// handler that lost its lease submitted nothing.
fn rejections(case: &Case) -> Vec<String> {
    let happened = |line: &&Line| match line {
        Line::Rejected { run, how, unsure, .. } => {
            let sure = *how == How::Complete || !unsure;
            sure && case.log_state.end_of(run) == Some(end_by(*how))
        }
        Line::Lost { run, .. } => case.log_state.end_of(run) == Some("completed"),
        _ => false,
    };
    case.lines().filter(happened).map(|line| format!("{line:?}, but it happened")).collect()
}

fn strays(case: &Case) -> Vec<String> {
    let asked = case.asked();
    let unasked = case.log_state.runs.iter().filter(|(run, lease)| match lease.end.as_deref() {
        Some("completed") => !asked.contains(&(*run, How::Complete)),
        Some("retry_scheduled") => {
            // A worker fails an attempt whose payload it could not read.
            !asked.contains(&(*run, How::Fail)) && asked.contains(&(*run, How::Complete))
        }
        _ => false,
    });
    unasked.map(|(run, lease)| format!("{run}: {lease:?}")).collect()
}

fn results(case: &Case) -> Vec<String> {
    let mut found = Vec::new();
    for (id, task) in &case.log_state.tasks {
        let run = Run { id: id.clone(), epoch: task.epoch }.to_string();
        let result = case.view.results.get(id);
        if task.state == State::Completed && result != Some(&run) {
            found.push(format!("{run} completed, but the result is {result:?}"));
        }
    }
    found
}

fn seen(case: &Case) -> Vec<String> {
    let stored = case.view.events.iter().map(|event| {
        let task = Some(event.task.as_str()).filter(|task| !task.is_empty());
        (event.seq, digest(task, [&event.name, &event.body]))
    });
    let stored: Vec<Entry> = stored.collect();
    if stored == case.seen {
        return Vec::new();
    }
    let same = stored.iter().zip(&case.seen).take_while(|(stored, seen)| stored == seen).count();
    let (stored, seen) = (stored.get(same), case.seen.get(same));
    vec![format!("after {same} log events: read {seen:?}, stored {stored:?}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_state::LogState;
    use crate::view::{Event, Lane, LaneLimit, Row};

    fn run(id: &str, epoch: u64) -> Run {
        Run { id: id.into(), epoch }
    }

    fn event(task: &str, name: &str, body: &str) -> Event {
        let said = serde_json::from_str(body).unwrap();
        let (lane, task, name) = ("lane".into(), task.into(), name.into());
        Event { seq: 0, at: 0, lane, task, name, body: body.into(), said }
    }

    /// Two tasks: one fails first, the other loses its first lease.
    fn sound() -> Case {
        let events = [
            event("", "lane_limited", r#"{"limit":1}"#),
            event("0", "created", "{}"),
            event("1-a", "created", "{}"),
            event("0", "claimed", r#"{"epoch":7,"worker":"w","attempt":1}"#),
            event("0", "retry_scheduled", r#"{"reason":"0/7"}"#),
            event("1-a", "claimed", r#"{"epoch":7,"worker":"w","attempt":1}"#),
            event("1-a", "lease_lost", r#"{"epoch":7}"#),
            event("0", "promoted", "{}"),
            event("0", "claimed", r#"{"epoch":8,"worker":"w","attempt":2}"#),
            event("0", "renewed", r#"{"epoch":8}"#),
            event("0", "completed", r#"{"epoch":8}"#),
            event("1-a", "claimed", r#"{"epoch":8,"worker":"v","attempt":2}"#),
            event("1-a", "released", r#"{"epoch":8}"#),
            event("1-a", "claimed", r#"{"epoch":9,"worker":"v","attempt":2}"#),
            event("1-a", "completed", r#"{"epoch":9}"#),
        ];
        let events = (1..).zip(events).map(|(seq, event)| Event { seq, ..event }).collect();
        let row = |epoch, claims| Row { state: "completed".into(), epoch, claims, attempts: 2 };
        let lane = Lane { concurrency: Some(LaneLimit { running: 0 }) };
        let results = [("0", "0/8"), ("1-a", "1-a/9")];
        let view = View {
            tasks: [("0".into(), row(8, 2)), ("1-a".into(), row(9, 3))].into(),
            events,
            lanes: [("lane".into(), lane)].into(),
            results: results.map(|(id, result)| (id.into(), result.into())).into(),
        };
        let claimed =
            |run, attempt, worker: &str| Line::Claimed { run, attempt, worker: worker.into() };
        let (code, unsure) = ("stale_fence".to_owned(), false);
        let log = vec![
            Line::Created { nth: 0, id: "0".into(), duplicate: false },
            Line::Created { nth: 1, id: "1-a".into(), duplicate: true },
            claimed(run("0", 7), 1, "w"),
            Line::SettleRequested { run: run("0", 7), how: How::Fail },
            Line::Settled { run: run("0", 7), how: How::Fail },
            claimed(run("1-a", 7), 1, "w"),
            Line::Rejected { run: run("1-a", 7), how: How::Complete, code, unsure },
            claimed(run("0", 8), 2, "w"),
            Line::SettleRequested { run: run("0", 8), how: How::Complete },
            Line::Settled { run: run("0", 8), how: How::Complete },
            Line::Settled { run: run("1-a", 8), how: How::Release },
            claimed(run("1-a", 9), 2, "v"),
            Line::SettleRequested { run: run("1-a", 9), how: How::Complete },
            Line::Over { run: run("1-a", 9) },
            Line::Closed,
        ];
        let logs = vec![Vec::new(), log];
        let mut case = Case { tasks: 2, logs, view, ..Case::default() };
        case.seen = stored(&case);
        case
    }

    fn stored(case: &Case) -> Vec<Entry> {
        let entry = |event: &Event| {
            let task = Some(event.task.as_str()).filter(|task| !task.is_empty());
            (event.seq, digest(task, [&event.name, &event.body]))
        };
        case.view.events.iter().map(entry).collect()
    }

    /// The names of the rules that a modified case breaks.
    fn rules(doctor: impl FnOnce(&mut Case)) -> BTreeSet<String> {
        let mut case = sound();
        doctor(&mut case);
        case.log_state = LogState::of(&case.view.events);
        let name = |found: String| found.split(": ").next().unwrap_or_default().to_owned();
        broken(&case).into_iter().map(name).collect()
    }

    /// Appends a log event.
    fn again(case: &mut Case, task: &str, name: &str, body: &str) {
        let seq = case.view.events.len() as u64 + 1;
        case.view.events.push(Event { seq, ..event(task, name, body) });
        case.seen = stored(case);
    }

    fn said(case: &mut Case, line: Line) {
        case.logs[1].insert(0, line);
    }

    #[test]
    fn a_sound_case_breaks_no_rule() {
        assert_eq!(rules(|_| {}), BTreeSet::new());
    }

    #[test]
    fn every_rule_can_be_broken() {
        type Doctor = fn(&mut Case);
        let cases: &[(&str, Doctor)] = &[
            ("no process reports trouble", |case| said(case, Line::Unexpected("x".into()))),
            ("no process reports trouble", |case| drop(case.logs[1].pop())),
            ("the log has no gaps", |case| drop(case.view.events.remove(9))),
            ("a log event follows from those before it", |case| {
                again(case, "0", "completed", r#"{"epoch":8}"#);
            }),
            ("a log event follows from those before it", |case| {
                case.view.events[10].said.epoch = Some(7);
            }),
            ("a log event follows from those before it", |case| {
                case.view.events[11].said.epoch = Some(7);
            }),
            ("a log event follows from those before it", |case| {
                case.view.events[11].said.attempt = Some(3);
            }),
            ("a lane has no more leases than its limit", |case| {
                case.view.events[0].said.limit = Some(0);
            }),
            ("the rows agree with the log", |case| {
                case.view.tasks.get_mut("0").unwrap().attempts = 1;
            }),
            ("the rows agree with the log", |case| drop(case.view.tasks.remove("0"))),
            ("every task is completed once", |case| case.tasks = 3),
            ("every task is completed once", |case| {
                case.view.events.truncate(14);
            }),
            ("nothing is left leased", |case| {
                case.view.tasks.get_mut("0").unwrap().state = "active".into();
            }),
            ("nothing is left leased", |case| {
                case.view.lanes.get_mut("lane").unwrap().concurrency =
                    Some(LaneLimit { running: 1 });
            }),
            ("an acknowledged create exists, once per request", |case| {
                said(case, Line::Created { nth: 1, id: "1-b".into(), duplicate: false });
            }),
            ("a claimed task was leased to this worker alone", |case| {
                case.view.events[13].said.worker = Some("u".into());
            }),
            ("a claimed task was leased to this worker alone", |case| {
                let claimed = case.logs[1][2].clone();
                said(case, claimed);
            }),
            ("an acknowledged settle is in the log under its fence", |case| {
                said(case, Line::Settled { run: run("1-a", 7), how: How::Complete });
            }),
            ("one completion of a task is acknowledged", |case| {
                said(case, Line::Settled { run: run("1-a", 7), how: How::Complete });
                said(case, Line::Settled { run: run("1-a", 9), how: How::Complete });
            }),
            ("a rejected settle did not happen", |case| {
                let (run, code) = (run("1-a", 9), "stale_fence".to_owned());
                said(case, Line::Rejected { run, how: How::Complete, code, unsure: true });
            }),
            ("a rejected settle did not happen", |case| {
                let (run, code) = (run("0", 7), "stale_fence".to_owned());
                said(case, Line::Rejected { run, how: How::Fail, code, unsure: false });
            }),
            ("a rejected settle did not happen", |case| {
                said(case, Line::Lost { run: run("1-a", 9), code: "stale_fence".into() });
            }),
            ("only submitted settles happened", |case| {
                case.logs[1].retain(|line| !matches!(line, Line::SettleRequested { .. }));
            }),
            ("a result is that of the completing lease", |case| {
                case.view.results.insert("1-a".into(), "1-a/7".into());
            }),
            ("the subscriber read every log event in order", |case| case.seen.swap(3, 4)),
            ("the subscriber read every log event in order", |case| {
                case.seen.remove(5);
            }),
            ("the subscriber read every log event in order", |case| {
                case.seen.pop();
            }),
        ];
        for (rule, doctor) in cases {
            let found = rules(doctor);
            assert!(found.contains(*rule), "{rule} is not among {found:?}");
        }
        let tried: BTreeSet<&str> = cases.iter().map(|(rule, _)| *rule).collect();
        let all: BTreeSet<&str> = RULES.iter().map(|(rule, _)| *rule).collect();
        assert_eq!(tried, all);
    }
}
