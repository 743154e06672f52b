//! The rules of a file, given the output of its processes. Each rule lists its violations.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Change, FailureClass, PublicState, Settled};

use super::history::{Past, follow};
use super::line::{Act, How, Line};
use super::output::ProcessOutput;
use super::view::View;

type Rule = (&'static str, fn(&ProcessOutput, &View) -> Vec<String>);

/// True at any time.
const ALWAYS: &[Rule] = &[
    ("the file passes the integrity check", sound),
    ("the log has no gaps", gapless),
    ("an acknowledged create exists", creates),
    ("one key names one task", keys),
    ("an attempt that began is counted", attempts),
    ("an acknowledged settle stays settled", settles),
    ("one settle has one answer", answers),
    ("a rejected settle did not happen", rejections),
    ("the log has the order of the answers", order),
    ("the state agrees with the log", histories),
];

/// True while no process runs.
const AT_REST: &[Rule] = &[("only submitted changes exist", strays)];

const AT_THE_END: &[Rule] = &[("nothing is stuck", stuck)];

/// The progress of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    Work,
    Rest,
    End,
}

/// All violations of all rules.
pub(crate) fn broken(output: &ProcessOutput, view: &View, moment: Moment) -> Vec<String> {
    let rest = if moment >= Moment::Rest { AT_REST } else { &[] };
    let end = if moment == Moment::End { AT_THE_END } else { &[] };
    let mut found = Vec::new();
    for (name, rule) in [ALWAYS, rest, end].concat() {
        found.extend(rule(output, view).into_iter().map(|what| format!("{name}: {what}")));
    }
    found
}

fn sound(_: &ProcessOutput, view: &View) -> Vec<String> {
    if view.integrity == "ok" { Vec::new() } else { vec![view.integrity.clone()] }
}

fn gapless(_: &ProcessOutput, view: &View) -> Vec<String> {
    let expected = (1..=view.last_seq).collect::<Vec<_>>();
    if view.seqs == expected { Vec::new() } else { vec![format!("{:?}", view.seqs)] }
}

fn creates(output: &ProcessOutput, view: &View) -> Vec<String> {
    let lost = |line: &Line| match line {
        Line::Created { stored_id, .. } if !view.tasks.contains_key(stored_id) => {
            Some(format!("{line:?}"))
        }
        _ => None,
    };
    output.lines().filter_map(lost).collect()
}

fn strays(output: &ProcessOutput, view: &View) -> Vec<String> {
    let specs = output.specs();
    let asked: BTreeSet<String> = output.lines().filter_map(asked_mark).collect();
    let mut found = Vec::new();
    for (id, history) in &view.histories {
        let wanted = |change: &Change| match change {
            Change::Completed { epoch } => asked.contains(&format!("{id}/{epoch}")),
            Change::Failed { class: FailureClass::Crash, .. } => true,
            Change::RetryScheduled { reason, .. } | Change::Failed { reason, .. } => {
                asked.contains(reason)
            }
            _ => true,
        };
        if !specs.contains_key(id.as_str()) || !history.iter().all(|(_, change)| wanted(change)) {
            found.push(format!("{id} by {history:?}"));
        }
    }
    found
}

fn asked_mark(line: &Line) -> Option<String> {
    match line {
        Line::SettleRequested(act) => Some(act.mark()),
        _ => None,
    }
}

fn keys(output: &ProcessOutput, view: &View) -> Vec<String> {
    let mut ids = BTreeMap::<&str, BTreeSet<&str>>::new();
    for spec in output.specs().into_values() {
        let (Some(key), true) = (&spec.key, view.tasks.contains_key(&spec.id)) else { continue };
        ids.entry(key).or_default().insert(&spec.id);
    }
    for line in output.lines() {
        if let Line::Created { spec, stored_id, .. } = line {
            ids.entry(spec.key.as_ref().unwrap_or(&spec.id)).or_default().insert(stored_id);
        }
    }
    ids.iter().filter(|(_, ids)| ids.len() > 1).map(|found| format!("{found:?}")).collect()
}

/// Every attempt that began is in the log; no attempt number repeats, unless it was released;
/// none exceeds the maximum.
fn attempts(output: &ProcessOutput, view: &View) -> Vec<String> {
    let specs = output.specs();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in output.lines() {
        let Line::Began { id, epoch, attempt } = line else { continue };
        let logged = |change: &Change| match change {
            Change::Claimed { epoch: e, attempt: Some(a), .. } => (e, a) == (epoch, attempt),
            Change::Begun { epoch: e, attempt: a } => (e, a) == (epoch, attempt),
            _ => false,
        };
        let given_back = |change: &Change| *change == Change::Released { epoch: *epoch };
        let history = view.history(id);
        let is_logged = history.iter().any(|(_, change)| logged(change));
        let is_repeated =
            !history.iter().any(|(_, change)| given_back(change)) && !seen.insert((id, attempt));
        // The commands of a running process may not be read yet.
        let most = specs.get(id.as_str()).map_or(u32::MAX, |spec| spec.max_attempts);
        if !is_logged || is_repeated || !(1..=most).contains(attempt) {
            found.push(format!("{line:?} of {most}, in {history:?}"));
        }
    }
    found
}

/// The sequence number of the log event of an act.
fn entry_of(act: &Act, view: &View) -> Option<i64> {
    let made = |change: &Change| match (act.how, change) {
        (How::Complete, Change::Completed { epoch }) => *epoch == act.epoch,
        (How::Release, Change::Released { epoch }) => *epoch == act.epoch,
        (How::Fail, Change::RetryScheduled { reason, .. } | Change::Failed { reason, .. })
        | (How::NonRetryable, Change::Failed { reason, .. }) => *reason == act.mark(),
        _ => false,
    };
    view.history(&act.id).iter().find(|(_, change)| made(change)).map(|(seq, _)| *seq)
}

/// A settle is in the log forever, and one that ended its task determines the task's final state:
/// so no two of them can be acknowledged for one task.
fn settles(output: &ProcessOutput, view: &View) -> Vec<String> {
    let mut found = Vec::new();
    for line in output.lines() {
        let Line::Settled { act, .. } = line else { continue };
        let state = view.tasks.get(&act.id).map(|task| task.lifecycle.public());
        let shows = match act.how {
            How::Complete => {
                let result = format!("\"{}\"", act.mark());
                state == Some(PublicState::Completed) && view.results.get(&act.id) == Some(&result)
            }
            How::NonRetryable => state == Some(PublicState::Failed),
            How::Fail | How::Release => state.is_some(),
        };
        if !shows || entry_of(act, view).is_none() {
            found.push(format!("{line:?}, but {state:?} by {:?}", view.history(&act.id)));
        }
    }
    found
}

fn answers(output: &ProcessOutput, _: &View) -> Vec<String> {
    let mut first = BTreeMap::<&Act, &Settled>::new();
    let mut found = Vec::new();
    for line in output.lines() {
        let Line::Settled { act, answer: Some(answer) } = line else { continue };
        let fits = match act.how {
            How::Complete => *answer == Settled::Completed,
            How::NonRetryable => *answer == Settled::Failed,
            How::Release => *answer == Settled::Released,
            How::Fail => matches!(answer, Settled::Failed | Settled::RetryAt(_)),
        };
        if !fits || *first.entry(act).or_insert(answer) != answer {
            found.push(format!("{line:?}"));
        }
    }
    found
}

/// Checks settles that end their task: a task forgets the answer of other settles with the next
/// one. A draining worker may release a lease just before its handler returns; the settle of the
/// handler is then rejected as a different one.
fn rejections(output: &ProcessOutput, view: &View) -> Vec<String> {
    let wrong = |line: &Line| match line {
        Line::Rejected { act, code } if act.ends() => {
            let release = Act { how: How::Release, ..act.clone() };
            let is_released = entry_of(&release, view).is_some();
            let is_wrong = code == "already_settled" && !is_released;
            let happened = entry_of(act, view).is_some() || is_wrong;
            happened.then(|| format!("{line:?}, but {:?}", view.history(&act.id)))
        }
        _ => None,
    };
    output.lines().filter_map(wrong).collect()
}

/// A command answered before another was submitted comes before it in the log.
fn order(output: &ProcessOutput, view: &View) -> Vec<String> {
    let mut found = Vec::new();
    // For each act, the last log event known when it was first submitted.
    let mut asked = BTreeMap::<&Act, i64>::new();
    for life in &output.lives {
        let mut created_after = BTreeMap::<&str, i64>::new();
        let mut known = 0;
        for line in life {
            let (seq, after) = match line {
                Line::CreateRequested(spec) => {
                    created_after.insert(&spec.id, known);
                    continue;
                }
                Line::SettleRequested(act) => {
                    asked.entry(act).or_insert(known);
                    continue;
                }
                Line::Created { spec, duplicate: false, .. } => {
                    let seq = view.history(&spec.id).first().map(|(seq, _)| *seq);
                    (seq, created_after.get(spec.id.as_str()).copied())
                }
                Line::Settled { act, .. } => (entry_of(act, view), asked.get(act).copied()),
                _ => continue,
            };
            let (Some(seq), after) = (seq, after.unwrap_or(0)) else { continue };
            if seq <= after {
                found.push(format!("{line:?} is log event {seq}, not after {after}"));
            }
            known = known.max(seq);
        }
    }
    found
}

fn histories(output: &ProcessOutput, view: &View) -> Vec<String> {
    let specs = output.specs();
    let mut found = Vec::new();
    for (id, task) in &view.tasks {
        let history = view.history(id);
        let logged = match follow(task.epoch - u64::from(task.claims), history) {
            Ok(logged) => logged,
            Err(what) => {
                found.push(format!("{id}: {what} in {history:?}"));
                continue;
            }
        };
        let state = task.lifecycle.public();
        let stored = Past { epoch: task.epoch, attempts: task.attempts, state };
        let most = specs.get(id.as_str()).map_or(u32::MAX, |spec| spec.max_attempts);
        if logged != stored || stored.attempts > most {
            found.push(format!("{id}: log {logged:?}, record {stored:?}, by {history:?}"));
        }
    }
    found.extend(view.histories.keys().filter(|id| !view.tasks.contains_key(*id)).cloned());
    found
}

fn stuck(_: &ProcessOutput, view: &View) -> Vec<String> {
    let open = view.tasks.values().filter(|task| task.lifecycle.ended_at().is_none());
    open.map(|task| format!("{task:?}")).collect()
}
