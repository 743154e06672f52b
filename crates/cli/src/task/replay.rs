use clap::Args;
use serde_json::json;
use windlass::{Outcome, TaskId, command};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    #[command(flatten)]
    target: Target,
}

impl Replay {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.task(&engine, &self.id).await?;
        let replay = command::Replay { task: task.task_key(), generation: task.generation };
        let generation = match engine.submit(replay).await? {
            Outcome::Replayed { generation } => generation,
            other => unreachable!("unexpected outcome of a replay: {other:?}"),
        };
        if self.target.json {
            say_json(&json!({ "id": self.id, "replayed": true, "generation": generation }));
        } else {
            let lane = &task.lane;
            say(&format!(
                "Task {} starts over in lane {lane}, as generation {generation}.",
                self.id
            ));
        }
        Ok(engine.shutdown().await?)
    }
}
