use clap::Args;
use serde_json::json;
use windlass::{Lifecycle, TaskId};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    /// Why, for whoever looks at it later.
    #[arg(long, default_value = "revoked from the command line")]
    reason: String,
    #[command(flatten)]
    target: Target,
}

impl Revoke {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let before = self.target.task(&engine, &self.id).await?;
        engine.revoke(&before.task_key(), self.reason).await?;
        let holder = match &before.lifecycle {
            Lifecycle::Active(lease) => Some(&lease.worker),
            Lifecycle::Reserved { worker, .. } => Some(worker),
            _ => None,
        };
        if self.target.json {
            say_json(&json!({ "id": self.id, "state": "waiting", "holder": holder }));
        } else {
            let of = holder.map_or_else(String::new, |holder| format!(" from {holder}"));
            say(&format!("Task {} is taken back{of}, and waits in its lane.", self.id));
        }
        Ok(engine.shutdown().await?)
    }
}
