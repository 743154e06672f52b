//! A history as text.

use std::collections::BTreeMap;

use windlass::workflow::{RecordedCommand, StepOutcome, TurnRecord, WorkflowInput};
use windlass::{Lifecycle, Task, Timestamp};

use crate::duration::{brief, moment, now};
use crate::output::{counted, one_line, say};
use crate::workflow::command_text::{awaited, command_text, ended, input_text, named, step_of};
use crate::workflow::executions::ExecutionRef;
use crate::workflow::open::{Open, open};

/// Prints the rows of an execution, which began with `unread` messages, and its current state.
pub(super) fn timeline(
    task: &Task,
    selected: &ExecutionRef<'_>,
    rows: &[TurnRecord],
    unread: &[String],
) {
    beginning(task, selected, rows);
    say(&match selected {
        ExecutionRef::Present(task) => state_text(task, &open(rows, unread)),
        ExecutionRef::Past(execution) => {
            let took = took(execution.started_at, execution.ended_at);
            format!("continued as execution {} after {took}", execution.number + 1)
        }
    });
}

/// Prints the rows of an execution, without the state after them.
pub(super) fn beginning(task: &Task, selected: &ExecutionRef<'_>, rows: &[TurnRecord]) {
    let turns = counted(rows.len() as u64, "turn");
    let (id, kind, number) = (&task.id, &task.kind, selected.number());
    say(&format!("workflow {id} ({kind}), execution {number}, {turns}"));
    for line in lines(rows) {
        say(&line);
    }
}

/// A duration, with fractions of a second where they matter.
fn took(from: Timestamp, to: Timestamp) -> String {
    match from.ms_until(to) {
        ms @ 1_000..10_000 => format!("{}.{:02}s", ms / 1_000, ms % 1_000 / 10),
        ms => brief(ms),
    }
}

fn lines(rows: &[TurnRecord]) -> Vec<String> {
    let Some(begin) = rows.first().map(|row| row.at) else { return Vec::new() };
    let mut steps: BTreeMap<u64, (&RecordedCommand, Timestamp)> = BTreeMap::new();
    let (mut lines, mut before) = (Vec::new(), begin);
    for (turn, row) in rows.iter().enumerate() {
        let offset = format!("+{}", took(begin, row.at));
        let mut head = format!("turn {turn:>4}  {}  {offset:>8}", row.at);
        if turn > 0 {
            head.push_str(&format!("  after {}", took(before, row.at)));
        }
        lines.push(head);
        // A local activity is completed in the row that creates it.
        let created =
            row.commands.iter().filter_map(|command| Some((step_of(command)?, (command, row.at))));
        steps.extend(created);
        let arrived = row.inputs.iter().map(|input| arrived(input, &steps, row.at));
        lines.extend(arrived.map(|text| format!("           <- {text}")));
        lines.extend(
            row.commands
                .iter()
                .map(|command| format!("           -> {}", command_in_history(command, &steps))),
        );
        before = row.at;
    }
    lines
}

/// An input; for the end of a step also its command and its duration.
fn arrived(
    input: &WorkflowInput,
    steps: &BTreeMap<u64, (&RecordedCommand, Timestamp)>,
    at: Timestamp,
) -> String {
    let WorkflowInput::StepCompletion { step, outcome } = input else { return input_text(input) };
    let Some((command, since)) = steps.get(step) else { return input_text(input) };
    if let (
        RecordedCommand::StartDetached { .. } | RecordedCommand::Signal { .. },
        StepOutcome::Failed { reason, .. },
    ) = (command, outcome)
    {
        return format!("{}, step {step}, was rejected: {}", named(command), one_line(reason));
    }
    let (verb, rest) = ended(outcome);
    format!("{}, step {step}, {verb} after {}{rest}", named(command), took(*since, at))
}

fn command_in_history(
    command: &RecordedCommand,
    steps: &BTreeMap<u64, (&RecordedCommand, Timestamp)>,
) -> String {
    match command {
        RecordedCommand::Cancel { step } => match steps.get(step) {
            Some((cancelled, _)) => format!("cancels {}, step {step}", named(cancelled)),
            None => command_text(command),
        },
        _ => command_text(command),
    }
}

/// The state after the last row.
fn state_text(task: &Task, open: &[Open<'_>]) -> String {
    let now = now();
    let state = task.lifecycle.public();
    if let Some(at) = task.lifecycle.ended_at() {
        let took = took(task.started_at, at);
        let why = match &task.lifecycle {
            Lifecycle::Failed { class, reason, .. } => {
                format!(": {}: {}", class.as_str(), one_line(reason))
            }
            Lifecycle::Cancelled { reason, .. } => format!(": {}", one_line(reason)),
            _ => String::new(),
        };
        return format!("{state} after {took}{why}");
    }
    let waits = open.iter().map(|open| {
        format!(
            "\n           {}, step {}, since {}",
            awaited(open.command),
            open.step,
            moment(open.since, now)
        )
    });
    let waits: String = waits.collect();
    if waits.is_empty() { state.to_string() } else { format!("{state}, waits for:{waits}") }
}

#[cfg(test)]
mod tests {
    use windlass::workflow::HistoryPayload;
    use windlass::{FailureClass, Payload};

    use super::*;

    #[test]
    fn a_history_as_text() {
        let at = |ms| Timestamp::from_millis(ms);
        let carried = |text: &str| Some(HistoryPayload(Payload::json(text)));
        let completed = |step, text| WorkflowInput::StepCompletion {
            step,
            outcome: StepOutcome::Completed { result: carried(text) },
        };
        let message = WorkflowInput::Message {
            name: "go".into(),
            source: "ada".into(),
            payload: carried("1"),
        };
        let reason = "go could not be sent to b: it is full".to_owned();
        let outcome = StepOutcome::Failed { class: FailureClass::Permanent, reason };
        let rejected = WorkflowInput::StepCompletion { step: 3, outcome };
        let rows = [
            TurnRecord {
                at: at(0),
                inputs: vec![completed(0, "5")],
                commands: vec![
                    RecordedCommand::LocalActivity { step: 0, name: "price".into() },
                    RecordedCommand::Activity {
                        step: 1,
                        name: "charge".into(),
                        input: carried("[5]"),
                    },
                    RecordedCommand::Timer { step: 2, until: at(60_000) },
                    RecordedCommand::Signal { step: 3, to: "b".into(), name: "go".into() },
                ],
            },
            TurnRecord {
                at: at(1_500),
                inputs: vec![completed(1, "true"), message, rejected],
                commands: vec![RecordedCommand::Cancel { step: 2 }],
            },
        ];
        let expected = "\
turn    0  1970-01-01T00:00:00.000Z      +0ms
           <- local activity price, step 0, completed after 0ms: 5
           -> local activity price, step 0
           -> activity charge, step 1: [5]
           -> timer until 1970-01-01T00:01:00.000Z, step 2
           -> message go to b, step 3
turn    1  1970-01-01T00:00:01.500Z    +1.50s  after 1.50s
           <- activity charge, step 1, completed after 1.50s: true
           <- message go from ada: 1
           <- message go to b, step 3, was rejected: go could not be sent to b: it is full
           -> cancels timer until 1970-01-01T00:01:00.000Z, step 2";
        assert_eq!(lines(&rows).join("\n"), expected);
    }
}
