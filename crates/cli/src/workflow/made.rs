//! The text of history records.

use windlass::workflow::{Arrival, Carried, Made, StepOutcome};

use crate::output::{one_line, printable};
use crate::task::brief;

/// The step number of a command, if it has one.
pub(super) fn step_of(made: &Made) -> Option<u64> {
    match made {
        Made::Activity { step, .. }
        | Made::Local { step, .. }
        | Made::Timer { step, .. }
        | Made::Child { step, .. }
        | Made::Start { step, .. }
        | Made::Wait { step, .. }
        | Made::Post { step, .. } => Some(*step),
        Made::Cancel { .. } | Made::Patch { .. } => None,
    }
}

/// The name of a command: `activity charge`.
pub(super) fn named(made: &Made) -> String {
    match made {
        Made::Activity { name, .. } => format!("activity {}", printable(name)),
        Made::Local { name, .. } => format!("local activity {}", printable(name)),
        Made::Timer { until, .. } => format!("timer until {until}"),
        Made::Child { name, id, .. } => format!("child {} as {id}", printable(name)),
        Made::Start { name, id, .. } => format!("start of {} as {id}", printable(name)),
        Made::Wait { name, .. } => format!("wait for message {}", printable(name)),
        Made::Post { name, to, .. } => format!("message {} to {to}", printable(name)),
        Made::Cancel { step } => format!("cancels step {step}"),
        Made::Patch { id } => format!("takes patch {}", printable(id)),
    }
}

/// What an open step waits for.
pub(super) fn awaited(made: &Made) -> String {
    match made {
        Made::Wait { name, .. } => format!("message {}", printable(name)),
        _ => named(made),
    }
}

/// A command with its step and its input.
pub(super) fn told(made: &Made) -> String {
    let mut text = named(made);
    if let Some(step) = step_of(made) {
        text.push_str(&format!(", step {step}"));
    }
    match made {
        Made::Activity { input, .. } => text + &carried(input.as_ref()),
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
pub(super) fn came(arrival: &Arrival) -> String {
    match arrival {
        Arrival::Report { step, outcome } => {
            let (word, rest) = ended(outcome);
            format!("step {step} {word}{rest}")
        }
        Arrival::Message { name, source, payload } => {
            let carried = carried(payload.as_ref());
            format!("message {} from {}{carried}", printable(name), printable(source))
        }
        Arrival::Cancel { reason } => format!("cancellation requested: {}", one_line(reason)),
    }
}

fn carried(payload: Option<&Carried>) -> String {
    payload.map_or_else(String::new, |payload| format!(": {}", brief(&payload.0)))
}
