use clap::Args;
use windlass::{Engine, Task, TaskId};

use crate::error::CliError;
use crate::output::say;
use crate::target::Target;
use crate::workflow::executions::{all_executions, select_execution};
use crate::workflow::open::unread;
use crate::workflow::timeline::{beginning, timeline};

const EXAMPLES: &str = "Examples:
  windlass workflow history order-42
  windlass workflow history feed-7 --execution 3
  windlass workflow history order-42 --json > order-42.jsonl
  windlass workflow history order-42 --recording > tests/histories/order-42.json

<- is an input of the workflow, -> a command of its code. The duration of an activity is from the
turn that created it to the turn that received its completion. If a row cannot be read, those before
it are printed, and then the error. With --json each line is a row of the
history as it is stored. With --recording it is all that a test needs to replay the code, of all
retained executions: a JSON array of `RecordedExecution` of windlass::workflow::testing.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct History {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// The execution, from 0 [default: the current one]
    #[arg(long, value_name = "N")]
    execution: Option<u32>,
    /// Print all that is needed to replay the code against it, as one JSON document.
    #[arg(long)]
    recording: bool,
    #[command(flatten)]
    target: Target,
}

impl History {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.workflow(&engine, &self.id).await?;
        if self.recording {
            say(&self.recorded(&engine, &task).await?);
            return Ok(engine.shutdown().await?);
        }
        let selected = select_execution(&engine, &task, self.execution).await?;
        let (rows, damage) = selected.rows_as_far(&engine).await;
        if self.target.json {
            for row in &rows {
                say(&written(serde_json::to_string(row))?);
            }
        } else if damage.is_some() {
            beginning(&task, &selected, &rows);
        } else {
            timeline(&task, &selected, &rows, &unread(&engine, &task).await?);
        }
        engine.shutdown().await?;
        damage.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn recorded(&self, engine: &Engine, task: &Task) -> Result<String, CliError> {
        let executions = match self.execution {
            Some(_) => vec![select_execution(engine, task, self.execution).await?],
            None => all_executions(engine, task).await?,
        };
        let mut all = Vec::new();
        for selected in executions {
            all.push(selected.recorded(engine, task).await?);
        }
        written(serde_json::to_string(&all))
    }
}

/// Without a `Value` in between, which would change the payloads.
fn written(text: serde_json::Result<String>) -> Result<String, CliError> {
    text.map_err(|error| CliError::System {
        what: "a history cannot be written",
        error: error.into(),
    })
}
