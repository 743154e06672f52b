use clap::Args;
use serde_json::json;
use windlass::TaskId;

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The id of the task, as `task list --state suspended` shows it.
    id: TaskId,
    /// The operator, stored with the event.
    #[arg(long, default_value = "command line")]
    by: String,
    #[command(flatten)]
    target: Target,
}

impl Resume {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let resumed = engine.resume(&self.target.key(&self.id), self.by).await;
        let named = |error| CliError::for_object("task", &self.id, error).named(&[("by", "--by")]);
        resumed.map_err(named)?;
        if self.target.json {
            say_json(&json!({ "id": self.id, "state": "resumable" }));
        } else {
            say(&format!("Task {} resumes on the next free worker.", self.id));
        }
        Ok(engine.shutdown().await?)
    }
}
