use clap::Args;
use serde_json::json;
use windlass::{Lifecycle, TaskId, command};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    /// The reason, stored with the task.
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
    #[command(flatten)]
    target: Target,
}

impl Cancel {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let before = self.target.task(&engine, &self.id).await?;
        engine.submit(command::Cancel { task: before.task_key(), reason: self.reason }).await?;
        let holder = match &before.lifecycle {
            Lifecycle::Active(lease) => Some(&lease.worker),
            _ => None,
        };
        if self.target.json {
            say_json(&json!({ "id": self.id, "state": "cancelled", "holder": holder }));
        } else {
            say(&format!("Task {} is cancelled.", self.id));
            if let Some(worker) = holder {
                say(&format!("{worker} was running it, and is notified."));
            }
        }
        Ok(engine.shutdown().await?)
    }
}
