//! Derives from its history what a workflow waits for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass::workflow::{RecordedCommand, TurnRecord, WorkflowInput};
use windlass::{Engine, Error, Task, Timestamp};

use crate::workflow::command_text::step_of;

/// A step that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open<'h> {
    pub(super) step: u64,
    pub(super) command: &'h RecordedCommand,
    pub(super) since: Timestamp,
}

/// Replays a history and collects the open steps.
#[derive(Debug, Default)]
struct Reader<'h> {
    open: BTreeMap<u64, Open<'h>>,
    /// The names of messages that no wait has read yet.
    unread: Vec<&'h str>,
}

/// The names of the unread messages carried over from the previous execution.
pub(super) async fn unread(engine: &Engine, task: &Task) -> Result<Vec<String>, Error> {
    let carried = match task.carried_key() {
        Some(key) => engine.payload(&key).await?,
        None => None,
    };
    let carried = carried.and_then(|payload| serde_json::from_slice::<Value>(&payload.bytes).ok());
    let messages = carried.as_ref().and_then(|carried| carried["unread"].as_array());
    let name = |message: &Value| message["name"].as_str().map(str::to_owned);
    Ok(messages.into_iter().flatten().filter_map(name).collect())
}

/// The steps that are open after these rows, which began with `unread` messages.
pub(super) fn open<'h>(rows: &'h [TurnRecord], unread: &'h [String]) -> Vec<Open<'h>> {
    let unread = unread.iter().map(String::as_str).collect();
    let mut reader = Reader { unread, ..Reader::default() };
    for row in rows {
        // A local activity is created and completed in the same row.
        let mut early_completions = BTreeSet::new();
        for input in &row.inputs {
            match input {
                WorkflowInput::StepCompletion { step, .. } => {
                    if !reader.end(*step) {
                        early_completions.insert(*step);
                    }
                }
                WorkflowInput::Message { name, .. } => reader.deliver(name),
                WorkflowInput::Cancel { .. } => {}
            }
        }
        for command in &row.commands {
            reader.make(command, row.at, &early_completions);
        }
    }
    reader.open.into_values().collect()
}

impl<'h> Reader<'h> {
    /// Ends a step and returns whether it was open.
    fn end(&mut self, step: u64) -> bool {
        let Some(ended) = self.open.remove(&step) else { return false };
        // A timer created right after a wait is its timeout: code that stops waiting when it fires
        // leaves no other trace in the history.
        if let (RecordedCommand::Timer { .. }, Some(before)) = (ended.command, step.checked_sub(1))
        {
            let wait = self.open.get(&before);
            if wait.is_some_and(|wait| matches!(wait.command, RecordedCommand::WaitSignal { .. })) {
                self.open.remove(&before);
            }
        }
        true
    }

    /// The first message goes to the first wait of its name.
    fn deliver(&mut self, name: &'h str) {
        let is_it = |open: &Open<'_>| match open.command {
            RecordedCommand::WaitSignal { name: of, .. } => of == name,
            _ => false,
        };
        match self.open.values().find(|open| is_it(open)).map(|open| open.step) {
            Some(step) => drop(self.open.remove(&step)),
            None => self.unread.push(name),
        }
    }

    fn make(
        &mut self,
        command: &'h RecordedCommand,
        since: Timestamp,
        early_completions: &BTreeSet<u64>,
    ) {
        match command {
            RecordedCommand::Cancel { step } => drop(self.open.remove(step)),
            RecordedCommand::StartDetached { .. }
            | RecordedCommand::Signal { .. }
            | RecordedCommand::Patch { .. } => {}
            RecordedCommand::WaitSignal { name, .. } if self.unread.contains(&name.as_str()) => {
                let position = self.unread.iter().position(|unread| unread == name);
                position.map(|position| self.unread.remove(position));
            }
            _ => {
                if let Some(step) =
                    step_of(command).filter(|step| !early_completions.contains(step))
                {
                    self.open.insert(step, Open { step, command, since });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass::workflow::StepOutcome;

    use super::*;

    fn row(inputs: Vec<WorkflowInput>, commands: Vec<RecordedCommand>) -> TurnRecord {
        TurnRecord { at: Timestamp::from_millis(1), inputs, commands }
    }

    fn wait(step: u64) -> RecordedCommand {
        RecordedCommand::WaitSignal { step, name: "go".into() }
    }

    fn timer(step: u64) -> RecordedCommand {
        RecordedCommand::Timer { step, until: Timestamp::from_millis(9) }
    }

    fn activity(step: u64) -> RecordedCommand {
        RecordedCommand::Activity { step, name: "charge".into(), input: None }
    }

    fn report(step: u64) -> WorkflowInput {
        let fired = StepOutcome::Fired;
        let outcome = if step == 1 { fired } else { StepOutcome::Completed { result: None } };
        WorkflowInput::StepCompletion { step, outcome }
    }

    fn message() -> WorkflowInput {
        WorkflowInput::Message { name: "go".into(), source: "ada".into(), payload: None }
    }

    #[test]
    fn open_steps_of_a_history() {
        let local = RecordedCommand::LocalActivity { step: 0, name: "price".into() };
        let cancel = |step| RecordedCommand::Cancel { step };
        for (rows, unread, expected) in [
            (vec![row(vec![], vec![activity(0), timer(1)])], 0, vec![0, 1]),
            (vec![row(vec![], vec![activity(0)]), row(vec![report(0)], vec![])], 0, vec![]),
            (vec![row(vec![report(0)], vec![local, activity(1)])], 0, vec![1]),
            (vec![row(vec![], vec![activity(0), timer(1), cancel(0)])], 0, vec![1]),
            // A wait with a timeout: a message arrived, or the timer fired.
            (vec![row(vec![], vec![wait(0), timer(1)])], 0, vec![0, 1]),
            (
                vec![
                    row(vec![], vec![wait(0), timer(1)]),
                    row(vec![message()], vec![cancel(1), activity(2)]),
                ],
                0,
                vec![2],
            ),
            (vec![row(vec![], vec![wait(0), timer(1)]), row(vec![report(1)], vec![])], 0, vec![]),
            // Messages that arrived before any wait.
            (vec![row(vec![message()], vec![]), row(vec![], vec![wait(0), wait(1)])], 0, vec![1]),
            (vec![row(vec![], vec![wait(0), wait(1)])], 1, vec![1]),
        ] {
            let unread = vec!["go".to_owned(); unread];
            let found: Vec<u64> = open(&rows, &unread).iter().map(|open| open.step).collect();
            assert_eq!(found, expected, "{rows:?}");
        }
    }
}
