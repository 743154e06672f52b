use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::{TaskId, WorkerId};
use crate::task::Lifecycle;

/// What a task knows that is a workflow: its handler is replayed over its history, which has a row
/// for each turn. Its generation counts its executions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowState {
    /// The version of its code that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How many rows the history of this execution has.
    #[serde(default)]
    pub turns: u32,
    /// The number of the first step of this execution.
    #[serde(default)]
    pub first_step: u64,
    /// The number of its next step, which was never given before.
    #[serde(default)]
    pub next_step: u64,
    /// Who has it in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// Why it was asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelling: Option<String>,
    /// Messages of the execution before came along to this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub carries: bool,
    /// What is to be known of this execution, in the words of a runtime of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Of the turn that was kept last, while its lease goes on: the same again is answered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going_on: Option<Digest>,
}

/// The worker that has a workflow in memory is asked first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sticky {
    pub worker: WorkerId,
    /// For so long; then anybody is.
    pub for_ms: u64,
}

/// Tells a workflow that one of its steps has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub step: u64,
    /// The task that it was; none for a timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Reporter>,
}

/// A task that was a step of a workflow, at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reporter {
    pub id: TaskId,
    pub generation: u32,
    /// It is a workflow itself, and keeps its result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_workflow: bool,
    pub ended: Lifecycle,
}

impl WorkflowState {
    pub(crate) fn new(version: Option<String>) -> Self {
        Self {
            version,
            turns: 0,
            first_step: 0,
            next_step: 0,
            sticky: None,
            cancelling: None,
            carries: false,
            about: None,
            going_on: None,
        }
    }
}
