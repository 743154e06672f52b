use duroxide::providers::ExecutionMetadata;
use duroxide::{Event, EventKind};
use serde::{Deserialize, Serialize};
use windlass_core::{Execution, Task};

pub(crate) const RUNNING: &str = "Running";

/// The facts of an execution that are needed without reading its history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ExecutionSummary {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<u64>,
    /// The history row that has the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_row: Option<u32>,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) status_version: u64,
    pub(crate) updated_at: u64,
    /// How many messages were carried over from the previous execution.
    pub(crate) carried: u64,
    /// Whether a key-value entry was ever set.
    pub(crate) has_values: bool,
}

impl ExecutionSummary {
    /// The facts of the current execution of an instance; none before its first ack.
    pub(crate) fn of(task: &Task) -> Option<Self> {
        let summary = task.workflow.as_ref()?.metadata.as_deref()?;
        serde_json::from_str(summary).ok()
    }

    pub(crate) fn of_past_execution(execution: &Execution) -> Self {
        let summary =
            execution.metadata.as_deref().and_then(|summary| serde_json::from_str(summary).ok());
        summary.unwrap_or_default()
    }

    /// The facts of the next execution.
    pub(crate) fn next(self) -> Self {
        Self {
            status: None,
            completed_at: None,
            output_row: None,
            events: 0,
            bytes: 0,
            carried: 0,
            ..self
        }
    }

    pub(crate) fn status(&self) -> &str {
        self.status.as_deref().unwrap_or(RUNNING)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status() != RUNNING
    }

    /// Adds the facts of an ack.
    pub(crate) fn apply_ack(
        &mut self,
        metadata: &ExecutionMetadata,
        events: &[Event],
        now_ms: u64,
    ) {
        self.updated_at = now_ms;
        if metadata.orchestration_name.is_some() {
            self.name = metadata.orchestration_name.clone();
        }
        if metadata.orchestration_version.is_some() {
            self.version = metadata.orchestration_version.clone();
        }
        if self.parent.is_none() {
            self.parent = metadata.parent_instance_id.clone();
        }
        if let Some(status) = &metadata.status {
            self.status = Some(status.clone());
            self.completed_at = (status != RUNNING).then_some(now_ms);
        }
        self.events += events.len() as u64;
        for event in events {
            match &event.kind {
                EventKind::CustomStatusUpdated { .. } => {}
                EventKind::KeyValueSet { .. } => self.has_values = true,
                EventKind::OrchestrationStarted { name, version, carry_forward_events, .. } => {
                    self.name.get_or_insert_with(|| name.clone());
                    self.version.get_or_insert_with(|| version.clone());
                    self.carried = carry_forward_events.as_ref().map_or(0, |c| c.len() as u64);
                }
                _ => {}
            }
        }
    }
}
