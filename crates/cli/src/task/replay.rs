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
        let replay = command::Replay { task: task.task_key(), execution: task.execution };
        let execution = match engine.submit(replay).await? {
            Outcome::Replayed { execution } => execution,
            other => unreachable!("unexpected outcome of a replay: {other:?}"),
        };
        if self.target.json {
            say_json(&json!({ "id": self.id, "replayed": true, "execution": execution }));
        } else {
            let lane = &task.lane;
            say(&format!("Task {} starts over in lane {lane}, as execution {execution}.", self.id));
        }
        Ok(engine.shutdown().await?)
    }
}
