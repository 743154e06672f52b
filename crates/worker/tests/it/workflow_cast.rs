//! Activities and helpers shared by the tests of workflows.

use std::time::Duration;

use windlass_core::{HistoryPayload, Payload, StepOutcome, Timestamp, TurnRecord, WorkflowInput};
use windlass_worker::workflow::{
    CompletedTurn, ExecutionStart, ExecutionState, Instance, ReplayStep, TurnProgress,
    WorkflowDefinition,
};
use windlass_worker::{Context, Failure};

pub(crate) async fn charge(_: Context, cents: u64) -> Result<String, Failure> {
    Ok(format!("paid {cents}"))
}

pub(crate) async fn refund(_: Context, receipt: String) -> Result<(), Failure> {
    Err(Failure::permanent(receipt))
}

pub(crate) async fn pack(_: Context, cents: u64) -> Result<u64, Failure> {
    Ok(cents)
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// The commands of a history, a line for each.
pub(crate) fn made(rows: &[TurnRecord]) -> Vec<String> {
    let made = rows.iter().flat_map(|row| &row.commands);
    made.map(|made| ReplayStep::Command(Box::new(made.clone())).to_string()).collect()
}

pub(crate) fn done(step: u64, json: &str) -> WorkflowInput {
    let result = Some(HistoryPayload(Payload::json(json)));
    WorkflowInput::StepCompletion { step, outcome: StepOutcome::Completed { result } }
}

pub(crate) fn fired(step: u64) -> WorkflowInput {
    WorkflowInput::StepCompletion { step, outcome: StepOutcome::Fired }
}

pub(crate) fn message(name: &str, json: &str) -> WorkflowInput {
    let payload = Some(HistoryPayload(Payload::json(json)));
    WorkflowInput::Message { name: name.to_owned(), source: "test".to_owned(), payload }
}

pub(crate) fn cancel(reason: &str) -> WorkflowInput {
    WorkflowInput::Cancel { reason: reason.to_owned() }
}

/// A workflow without input, before its first turn.
pub(crate) fn instance(program: &WorkflowDefinition) -> Instance {
    Instance::begin(program, ExecutionStart::new("w", 7))
}

/// A turn without local activities.
pub(crate) fn turn(instance: &mut Instance, ms: i64, inputs: Vec<WorkflowInput>) -> CompletedTurn {
    match instance.turn(at(ms), inputs).unwrap() {
        TurnProgress::Finished(finished) => finished,
        TurnProgress::Local(work) => panic!("{work:?}"),
    }
}

pub(crate) fn rows(finished: &CompletedTurn) -> Vec<TurnRecord> {
    finished.parts.iter().map(|part| part.row.clone()).collect()
}

/// The result of a workflow.
pub(crate) fn json(state: &ExecutionState) -> String {
    match state {
        ExecutionState::Completed(None) => "null".to_owned(),
        ExecutionState::Completed(Some(payload)) => {
            String::from_utf8(payload.bytes.to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}
