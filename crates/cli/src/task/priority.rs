use clap::Args;
use serde_json::json;
use windlass::{TaskId, command};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct Priority {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    /// Higher goes first; the default of a task is 0.
    #[arg(allow_negative_numbers = true)]
    priority: i32,
    #[command(flatten)]
    target: Target,
}

impl Priority {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (task, priority) = (self.target.key(&self.id), self.priority);
        let changed = engine.submit(command::ChangePriority { task, priority }).await;
        changed.map_err(|error| CliError::for_object("task", &self.id, error))?;
        if self.target.json {
            say_json(&json!({ "id": self.id, "priority": priority }));
        } else {
            say(&format!("Task {} has priority {priority}.", self.id));
        }
        Ok(engine.shutdown().await?)
    }
}
