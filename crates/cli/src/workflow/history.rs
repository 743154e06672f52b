use clap::Args;
use windlass::TaskId;

use crate::error::CliError;
use crate::output::say;
use crate::target::Target;
use crate::workflow::open::unread;
use crate::workflow::past::chapter;
use crate::workflow::timeline::timeline;

const EXAMPLES: &str = "Examples:
  windlass workflow history order-42
  windlass workflow history feed-7 --execution 3
  windlass workflow history order-42 --json > order-42.jsonl

<- is what the workflow was told, -> what it made of it. How long an activity took is the time from
the turn that made it to the turn that was told of its end. With --json each line is a row of the
history as it is kept, for replay-check and for tests.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct History {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// Which execution, from 0 [default: the present one]
    #[arg(long, value_name = "N")]
    execution: Option<u32>,
    #[command(flatten)]
    target: Target,
}

impl History {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.workflow(&engine, &self.id).await?;
        let chapter = chapter(&engine, &task, self.execution).await?;
        let rows = chapter.rows(&engine).await?;
        if self.target.json {
            for row in &rows {
                // Not by way of a value: what a payload looks like is part of it.
                let text = serde_json::to_string(row);
                say(&text.map_err(|error| CliError::System {
                    what: "a row cannot be written",
                    error: error.into(),
                })?);
            }
        } else {
            timeline(&task, &chapter, &rows, &unread(&engine, &task).await?);
        }
        Ok(engine.shutdown().await?)
    }
}
