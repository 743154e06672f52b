//! The executions of a workflow with their histories, as the store has them.

use windlass::workflow::{Execution, Turned};
use windlass::{Engine, Error, Task};

use crate::error::CliError;

/// How many executions are asked for at once.
const MOST: usize = 1_000;

/// One execution: the present one, or one that was followed by another.
#[derive(Debug)]
pub(super) enum Chapter<'t> {
    Past(Execution),
    Present(&'t Task),
}

impl Chapter<'_> {
    pub(super) fn number(&self) -> u32 {
        match self {
            Chapter::Past(execution) => execution.number,
            Chapter::Present(task) => task.generation,
        }
    }

    pub(super) async fn rows(&self, engine: &Engine) -> Result<Vec<Turned>, Error> {
        match self {
            Chapter::Past(execution) => engine.past_history(execution).await,
            Chapter::Present(task) => engine.history(task, 0).await,
        }
    }
}

/// Those that are kept, in order.
pub(super) async fn chapters<'t>(
    engine: &Engine,
    task: &'t Task,
) -> Result<Vec<Chapter<'t>>, CliError> {
    let (mut chapters, mut after) = (Vec::new(), None);
    loop {
        let page = engine.executions(&task.task_key(), after, MOST).await?;
        let is_last = page.len() < MOST;
        after = page.last().map(|execution| execution.number);
        chapters.extend(page.into_iter().map(Chapter::Past));
        if is_last {
            break;
        }
    }
    chapters.push(Chapter::Present(task));
    Ok(chapters)
}

/// The one of this number; the present one where none is said.
pub(super) async fn chapter<'t>(
    engine: &Engine,
    task: &'t Task,
    number: Option<u32>,
) -> Result<Chapter<'t>, CliError> {
    let Some(number) = number.filter(|number| *number != task.generation) else {
        return Ok(Chapter::Present(task));
    };
    let before = number.checked_sub(1);
    let found = engine.executions(&task.task_key(), before, 1).await?;
    let found = found.into_iter().find(|execution| execution.number == number);
    found.map(Chapter::Past).ok_or_else(|| CliError::NotFound {
        what: "execution",
        name: format!("{number} of workflow {}; it may be forgotten", task.id),
    })
}
