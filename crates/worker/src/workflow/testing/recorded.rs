use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use windlass_core::Turned;

use crate::failure::Failure;
use crate::workflow::{Begin, Instance, Nondeterminism, Program, Workflow};

/// One execution of a workflow, as it is kept to try later code against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    pub begin: Begin,
    pub rows: Vec<Turned>,
}

impl Recorded {
    /// Whether a program does what was recorded.
    pub fn check(&self, program: &Program) -> Result<(), Nondeterminism> {
        self.replay(program).map(drop)
    }

    /// The execution as it stands after what was recorded.
    pub fn replay(&self, program: &Program) -> Result<Instance, Nondeterminism> {
        let mut instance = Instance::begin(program, self.begin.clone());
        for row in &self.rows {
            instance.replay(row)?;
        }
        instance.catch_up()?;
        Ok(instance)
    }
}

/// Whether a function does what was recorded of it, or of what it was before it was changed.
pub fn replay_check<F, I, O, E, Fut>(function: F, recorded: &Recorded) -> Result<(), Nondeterminism>
where
    F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    I: DeserializeOwned,
    O: Serialize,
    E: Into<Failure>,
{
    recorded.check(&Program::named("replayed", function))
}
