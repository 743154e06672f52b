//! The executions of a workflow with their histories, as stored.

use windlass::workflow::testing::RecordedExecution;
use windlass::workflow::{Execution, TurnRecord};
use windlass::{Engine, Error, Task, TaskKey};

use crate::error::CliError;

/// The page size of executions.
const MOST: usize = 1_000;

/// One execution: the current one, or an earlier one.
#[derive(Debug)]
pub(super) enum ExecutionRef<'t> {
    Past(Execution),
    Present(&'t Task),
}

impl ExecutionRef<'_> {
    pub(super) fn number(&self) -> u32 {
        match self {
            ExecutionRef::Past(execution) => execution.number,
            ExecutionRef::Present(task) => task.execution,
        }
    }

    /// With all that is needed to replay its code.
    pub(super) async fn recorded(
        &self,
        engine: &Engine,
        task: &Task,
    ) -> Result<RecordedExecution, Error> {
        match self {
            ExecutionRef::Past(execution) => {
                RecordedExecution::of_past_execution(engine, task, execution).await
            }
            ExecutionRef::Present(task) => {
                RecordedExecution::of_current_execution(engine, task).await
            }
        }
    }

    pub(super) async fn rows(&self, engine: &Engine) -> Result<Vec<TurnRecord>, Error> {
        let (rows, error) = self.rows_as_far(engine).await;
        error.map_or(Ok(rows), Err)
    }

    /// The readable rows, and the error that ends them.
    pub(super) async fn rows_as_far(&self, engine: &Engine) -> (Vec<TurnRecord>, Option<Error>) {
        match self {
            ExecutionRef::Past(execution) => engine.readable_history_of_execution(execution).await,
            ExecutionRef::Present(task) => engine.readable_history(task).await,
        }
    }
}

/// The retained earlier executions, in order.
pub(super) async fn past_executions(
    engine: &Engine,
    workflow: &TaskKey,
) -> Result<Vec<Execution>, CliError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = engine.executions(workflow, after, MOST).await?;
        let is_last = page.len() < MOST;
        after = page.last().map(|execution| execution.number);
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// The retained executions, in order.
pub(super) async fn all_executions<'t>(
    engine: &Engine,
    task: &'t Task,
) -> Result<Vec<ExecutionRef<'t>>, CliError> {
    let past = past_executions(engine, &task.task_key()).await?;
    let present = std::iter::once(ExecutionRef::Present(task));
    Ok(past.into_iter().map(ExecutionRef::Past).chain(present).collect())
}

/// The execution of this number, by default the current one.
pub(super) async fn select_execution<'t>(
    engine: &Engine,
    task: &'t Task,
    number: Option<u32>,
) -> Result<ExecutionRef<'t>, CliError> {
    let Some(number) = number.filter(|number| *number != task.execution) else {
        return Ok(ExecutionRef::Present(task));
    };
    let before = number.checked_sub(1);
    let found = engine.executions(&task.task_key(), before, 1).await?;
    let found = found.into_iter().find(|execution| execution.number == number);
    found.map(ExecutionRef::Past).ok_or_else(|| CliError::NotFound {
        what: "execution",
        name: format!("{number} of workflow {}; it may have been deleted", task.id),
    })
}
