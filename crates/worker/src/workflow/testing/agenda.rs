use std::collections::BTreeMap;

use windlass_core::{TaskId, Timestamp, WorkflowInput};

/// Scheduled inputs, in order of time.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    due: BTreeMap<(Timestamp, u64), (TaskId, WorkflowInput)>,
    planned: u64,
}

impl Agenda {
    pub(super) fn plan(&mut self, at: Timestamp, to: TaskId, input: WorkflowInput) {
        self.planned += 1;
        self.due.insert((at, self.planned), (to, input));
    }

    /// Removes the scheduled outcome of a cancelled step.
    pub(super) fn forget(&mut self, workflow: &TaskId, step: u64) {
        let is_of = |input: &WorkflowInput| match input {
            WorkflowInput::StepCompletion { step: of, .. } => *of == step,
            _ => false,
        };
        self.due.retain(|_, (to, input)| to != workflow || !is_of(input));
    }

    /// The next inputs of one workflow: all that have the same time.
    pub(super) fn next(&mut self) -> Option<(Timestamp, TaskId, Vec<WorkflowInput>)> {
        let (&(at, _), (to, _)) = self.due.first_key_value()?;
        let to = to.clone();
        let moment = self.due.range((at, 0)..=(at, u64::MAX));
        let keys: Vec<_> = moment.filter(|(_, item)| item.0 == to).map(|(key, _)| *key).collect();
        let inputs = keys.iter().filter_map(|key| self.due.remove(key));
        let inputs = inputs.map(|(_, input)| input).collect();
        Some((at, to, inputs))
    }
}
