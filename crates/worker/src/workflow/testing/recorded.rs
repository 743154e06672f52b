use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use windlass_core::TurnRecord;

use crate::failure::Failure;
use crate::workflow::{ExecutionStart, Instance, Nondeterminism, Workflow, WorkflowDefinition};

/// A recorded execution of a workflow, to check later code against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedExecution {
    pub start: ExecutionStart,
    pub rows: Vec<TurnRecord>,
}

impl RecordedExecution {
    /// Checks that a workflow definition matches the recording.
    pub fn check(&self, definition: &WorkflowDefinition) -> Result<(), Nondeterminism> {
        self.replay(definition).map(drop)
    }

    /// Replays the recording and returns the execution.
    pub fn replay(&self, definition: &WorkflowDefinition) -> Result<Instance, Nondeterminism> {
        let mut instance = Instance::begin(definition, self.start.clone());
        for row in &self.rows {
            instance.replay(row)?;
        }
        instance.catch_up()?;
        Ok(instance)
    }
}

/// Checks that a function matches a recording, for example one of the code before a change.
pub fn replay_check<F, I, O, E, Fut>(
    function: F,
    recorded: &RecordedExecution,
) -> Result<(), Nondeterminism>
where
    F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    I: DeserializeOwned,
    O: Serialize,
    E: Into<Failure>,
{
    recorded.check(&WorkflowDefinition::named("replayed", function))
}
