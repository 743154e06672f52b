use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::{TaskId, WorkerId};
use crate::task::Lifecycle;

/// The state of a workflow: its handler is replayed over its history, which has one row per turn.
/// `Task::execution` numbers its executions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowState {
    /// The code version that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of rows in the history of this execution.
    #[serde(default)]
    pub turns: u32,
    /// The number of the first step of this execution.
    #[serde(default)]
    pub first_step: u64,
    /// The number of its next step, which was never used before.
    #[serde(default)]
    pub next_step: u64,
    /// The worker that caches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// The reason of its cancellation request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    /// Messages were carried over from the previous execution.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_carried_messages: bool,
    /// Metadata of this execution from an external runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The digest of the last turn, while its lease is retained: a repeat gets the same response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_kept_turn: Option<Digest>,
}

/// The sticky worker of a workflow, which caches its state and may claim its next turn first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sticky {
    pub worker: WorkerId,
    /// How long the next turn is granted to it; then any worker may claim it.
    pub ttl_ms: u64,
}

/// The completion of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCompletion {
    pub step: u64,
    /// The task of the step; none for a timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<CompletedTask>,
}

/// An ended task that was a step of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedTask {
    pub id: TaskId,
    pub execution: u32,
    /// It is a workflow, and retains its own result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_workflow: bool,
    pub lifecycle: Lifecycle,
}

impl WorkflowState {
    pub(crate) fn new(version: Option<String>) -> Self {
        Self {
            version,
            turns: 0,
            first_step: 0,
            next_step: 0,
            sticky: None,
            cancel_reason: None,
            has_carried_messages: false,
            metadata: None,
            last_kept_turn: None,
        }
    }
}
