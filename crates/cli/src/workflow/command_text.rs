//! The text of history records.

use windlass::workflow::{HistoryPayload, RecordedCommand, StepOutcome, WorkflowInput};

use crate::output::{one_line, printable};
use crate::task::brief;

/// The step number of a command, if it has one.
pub(super) fn step_of(command: &RecordedCommand) -> Option<u64> {
    match command {
        RecordedCommand::Activity { step, .. }
        | RecordedCommand::LocalActivity { step, .. }
        | RecordedCommand::Timer { step, .. }
        | RecordedCommand::Child { step, .. }
        | RecordedCommand::StartDetached { step, .. }
        | RecordedCommand::WaitSignal { step, .. }
        | RecordedCommand::Signal { step, .. } => Some(*step),
        RecordedCommand::Cancel { .. } | RecordedCommand::Patch { .. } => None,
    }
}

/// The name of a command: `activity charge`.
pub(super) fn named(command: &RecordedCommand) -> String {
    match command {
        RecordedCommand::Activity { name, .. } => format!("activity {}", printable(name)),
        RecordedCommand::LocalActivity { name, .. } => {
            format!("local activity {}", printable(name))
        }
        RecordedCommand::Timer { until, .. } => format!("timer until {until}"),
        RecordedCommand::Child { name, id, .. } => format!("child {} as {id}", printable(name)),
        RecordedCommand::StartDetached { name, id, .. } => {
            format!("start of {} as {id}", printable(name))
        }
        RecordedCommand::WaitSignal { name, .. } => format!("wait for message {}", printable(name)),
        RecordedCommand::Signal { name, to, .. } => format!("message {} to {to}", printable(name)),
        RecordedCommand::Cancel { step } => format!("cancels step {step}"),
        RecordedCommand::Patch { id } => format!("takes patch {}", printable(id)),
    }
}

/// What an open step waits for.
pub(super) fn awaited(command: &RecordedCommand) -> String {
    match command {
        RecordedCommand::WaitSignal { name, .. } => format!("message {}", printable(name)),
        _ => named(command),
    }
}

/// A command with its step and its input.
pub(super) fn command_text(command: &RecordedCommand) -> String {
    let mut text = named(command);
    if let Some(step) = step_of(command) {
        text.push_str(&format!(", step {step}"));
    }
    match command {
        RecordedCommand::Activity { input, .. } => text + &carried(input.as_ref()),
        _ => text,
    }
}

/// How a step has ended, as `completed: 7`.
pub(super) fn ended(outcome: &StepOutcome) -> (&'static str, String) {
    match outcome {
        StepOutcome::Completed { result } => ("completed", carried(result.as_ref())),
        StepOutcome::Failed { class, reason } => {
            ("failed", format!(": {}: {}", class.as_str(), one_line(reason)))
        }
        StepOutcome::Cancelled { reason } => ("was cancelled", format!(": {}", one_line(reason))),
        StepOutcome::Expired => ("expired before it ended", String::new()),
        StepOutcome::Fired => ("fired", String::new()),
    }
}

/// An input of the workflow.
pub(super) fn input_text(input: &WorkflowInput) -> String {
    match input {
        WorkflowInput::StepCompletion { step, outcome } => {
            let (verb, rest) = ended(outcome);
            format!("step {step} {verb}{rest}")
        }
        WorkflowInput::Message { name, source, payload } => {
            let carried = carried(payload.as_ref());
            format!("message {} from {}{carried}", printable(name), printable(source))
        }
        WorkflowInput::Cancel { reason } => format!("cancellation requested: {}", one_line(reason)),
    }
}

fn carried(payload: Option<&HistoryPayload>) -> String {
    payload.map_or_else(String::new, |payload| format!(": {}", brief(&payload.0)))
}
