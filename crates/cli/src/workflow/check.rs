//! Checks that a history is consistent.

use std::collections::{BTreeMap, BTreeSet};

use windlass::Timestamp;
use windlass::workflow::{RecordedCommand, StepOutcome, TurnRecord, WorkflowInput};

use crate::workflow::command_text::{named, step_of};

/// An inconsistency in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HistoryProblem {
    /// The row, from 0; none for the whole history.
    pub(super) turn: Option<usize>,
    pub(super) what: String,
}

/// The result of a check.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) problems: Vec<HistoryProblem>,
    /// The number after the last step, if known.
    pub(super) next_step: Option<u64>,
}

#[derive(Debug)]
struct Checker<'h> {
    turn: usize,
    at: Timestamp,
    first_step: Option<u64>,
    next_step: Option<u64>,
    commands: BTreeMap<u64, &'h RecordedCommand>,
    reported: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    patches: BTreeSet<&'h str>,
    /// Completions of steps that are not created yet: a turn committed in several rows has its
    /// inputs in the first, and its local activities perhaps in a later one.
    early_completions: BTreeMap<u64, usize>,
    problems: Vec<HistoryProblem>,
}

/// Checks the rows of an execution. `first_step` is the number of its first step, if known.
pub(super) fn check(rows: &[TurnRecord], first_step: Option<u64>) -> Checked {
    let mut checker = Checker {
        turn: 0,
        at: rows.first().map_or_else(Timestamp::default, |row| row.at),
        first_step,
        next_step: first_step,
        commands: BTreeMap::new(),
        reported: BTreeSet::new(),
        cancelled: BTreeSet::new(),
        patches: BTreeSet::new(),
        early_completions: BTreeMap::new(),
        problems: Vec::new(),
    };
    for (turn, row) in rows.iter().enumerate() {
        checker.turn = turn;
        checker.row(row);
    }
    for (step, turn) in std::mem::take(&mut checker.early_completions) {
        let what = format!("step {step} has ended, but was never created");
        checker.problems.push(HistoryProblem { turn: Some(turn), what });
    }
    Checked { problems: checker.problems, next_step: checker.next_step }
}

impl<'h> Checker<'h> {
    fn problem(&mut self, what: String) {
        self.problems.push(HistoryProblem { turn: Some(self.turn), what });
    }

    fn row(&mut self, row: &'h TurnRecord) {
        // A row without inputs and commands has the time of its reader.
        if !row.inputs.is_empty() || !row.commands.is_empty() {
            if row.at < self.at {
                self.problem(format!("its time {} is before that of the previous turn", row.at));
            }
            self.at = row.at;
        }
        for input in &row.inputs {
            if let WorkflowInput::StepCompletion { step, outcome } = input {
                self.report(*step, outcome, row);
            }
        }
        for command in &row.commands {
            self.make(command);
        }
    }

    fn report(&mut self, step: u64, outcome: &StepOutcome, row: &'h TurnRecord) {
        // A completion left over from the previous execution is not delivered.
        if self.first_step.is_some_and(|first| step < first) {
            return;
        }
        if !self.reported.insert(step) {
            return self.problem(format!("step {step} has ended a second time"));
        }
        let here = row.commands.iter().find(|command| step_of(command) == Some(step));
        match (self.commands.get(&step).copied(), here) {
            (Some(command), _) => self.fits(step, command, outcome),
            (None, Some(command @ RecordedCommand::LocalActivity { .. })) => {
                self.fits(step, command, outcome);
            }
            (None, Some(command)) => {
                self.problem(format!(
                    "{}, step {step}, has ended before it was created",
                    named(command)
                ));
            }
            (None, None) => drop(self.early_completions.insert(step, self.turn)),
        }
    }

    /// Checks whether the step can end with this outcome.
    fn fits(&mut self, step: u64, command: &RecordedCommand, outcome: &StepOutcome) {
        let fired = matches!(outcome, StepOutcome::Fired);
        match command {
            RecordedCommand::Timer { .. } if fired => {}
            RecordedCommand::Activity { .. }
            | RecordedCommand::LocalActivity { .. }
            | RecordedCommand::Child { .. }
                if !fired => {}
            // Not awaited by code: only a failure is reported.
            RecordedCommand::StartDetached { .. } | RecordedCommand::Signal { .. }
                if matches!(outcome, StepOutcome::Failed { .. }) => {}
            _ => {
                self.problem(format!("{}, step {step}, cannot end as {outcome:?}", named(command)));
            }
        }
    }

    fn make(&mut self, command: &'h RecordedCommand) {
        match command {
            RecordedCommand::Patch { id } => {
                if !self.patches.insert(id) {
                    self.problem(format!("patch {id} is recorded a second time"));
                }
            }
            RecordedCommand::Cancel { step } => self.cancel(*step),
            _ => {
                let Some(step) = step_of(command) else { return };
                let due = self.next_step.unwrap_or(step);
                if step != due {
                    self.problem(format!(
                        "{} is step {step}, but step {due} is next",
                        named(command)
                    ));
                }
                self.next_step = Some(step + 1);
                self.commands.insert(step, command);
                if self.early_completions.remove(&step).is_some()
                    && !matches!(command, RecordedCommand::LocalActivity { .. })
                {
                    self.problem(format!(
                        "{}, step {step}, has ended before it was created",
                        named(command)
                    ));
                }
            }
        }
    }

    fn cancel(&mut self, step: u64) {
        match self.commands.get(&step) {
            None => self.problem(format!("step {step} is cancelled, but was never created")),
            Some(
                RecordedCommand::WaitSignal { .. }
                | RecordedCommand::StartDetached { .. }
                | RecordedCommand::Signal { .. },
            ) => {
                self.problem(format!("step {step} is cancelled, but cannot be"));
            }
            Some(_) if !self.cancelled.insert(step) => {
                self.problem(format!("step {step} is cancelled a second time"));
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::FailureClass;

    /// A row from words: `a3` creates activity 3, and likewise l(ocal), t(imer), w(ait), m(essage);
    /// `x3` cancels it, `p` records a patch; `+3` completes it, `-3` fails it, `!3` fires it; `@5`
    /// is the time.
    fn row(words: &str) -> TurnRecord {
        let mut row =
            TurnRecord { at: Timestamp::from_millis(0), inputs: vec![], commands: vec![] };
        for verb in words.split_whitespace() {
            let (signal, number) = verb.split_at(1);
            let step = number.parse().unwrap_or(0);
            let name = "n".to_owned();
            let completed = StepOutcome::Completed { result: None };
            match signal {
                "a" => row.commands.push(RecordedCommand::Activity { step, name, input: None }),
                "l" => row.commands.push(RecordedCommand::LocalActivity { step, name }),
                "t" => {
                    row.commands.push(RecordedCommand::Timer { step, until: Timestamp::default() });
                }
                "m" => row.commands.push(RecordedCommand::Signal { step, to: "b".into(), name }),
                "w" => row.commands.push(RecordedCommand::WaitSignal { step, name }),
                "x" => row.commands.push(RecordedCommand::Cancel { step }),
                "p" => row.commands.push(RecordedCommand::Patch { id: name }),
                "+" => row.inputs.push(WorkflowInput::StepCompletion { step, outcome: completed }),
                "-" => {
                    let (class, reason) = (FailureClass::Permanent, String::new());
                    let outcome = StepOutcome::Failed { class, reason };
                    row.inputs.push(WorkflowInput::StepCompletion { step, outcome });
                }
                "!" => {
                    row.inputs
                        .push(WorkflowInput::StepCompletion { step, outcome: StepOutcome::Fired });
                }
                "@" => row.at = Timestamp::from_millis(i64::try_from(step).unwrap()),
                other => panic!("{other}"),
            }
        }
        row
    }

    #[test]
    fn problems() {
        for (first, rows, expected) in [
            (Some(0), "a0 t1 | +0 a2 x1 | +2", &[][..]),
            (Some(0), "a0 t1 | +0 x1 | +1", &["cannot end as"]),
            (Some(0), "a0 t1 | +0 x1 | !1", &[]),
            (Some(0), "m0 | -0", &[]),
            (Some(0), "m0 | +0", &["cannot end as"]),
            (Some(5), "a5 | +5", &[]),
            (Some(5), "a5 | +2 +5", &[]),
            (None, "a7 | +7 a8", &[]),
            (Some(0), "+0 l0 a1", &[]),
            (Some(0), "+1 a0 | l1", &[]),
            (Some(0), "p a0", &[]),
            (Some(0), "@5 a0 | @5 +0 | @3", &[]),
            (Some(0), "a1", &["step 0 is next"]),
            (Some(0), "a0 a2", &["step 1 is next"]),
            (Some(0), "a0 a0", &["step 1 is next"]),
            (Some(0), "a0 | +1", &["never created"]),
            (Some(0), "a0 | +1 a1", &["before it was created"]),
            (Some(0), "+1 a0 | a1", &["before it was created"]),
            (Some(0), "a0 | +0 | +0", &["a second time"]),
            (Some(0), "a0 | !0", &["cannot end as"]),
            (Some(0), "t0 | +0", &["cannot end as"]),
            (Some(0), "w0 | +0", &["cannot end as"]),
            (Some(0), "x0", &["never created"]),
            (Some(0), "w0 x0", &["but cannot be"]),
            (Some(0), "a0 x0 x0", &["a second time"]),
            (Some(0), "p p", &["a second time"]),
            (Some(0), "@5 a0 | @3 +0", &["before that of the previous turn"]),
        ] {
            let rows: Vec<TurnRecord> = rows.split('|').map(row).collect();
            let checked = check(&rows, first);
            let found: Vec<&str> =
                checked.problems.iter().map(|problem| problem.what.as_str()).collect();
            assert_eq!(found.len(), expected.len(), "{rows:?}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.contains(expected), "{found}: {expected}");
            }
        }
    }
}
