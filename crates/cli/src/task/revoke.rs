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
    /// The reason, stored with the event.
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
        let after = self.target.task(&engine, &self.id).await?;
        let holder = match &before.lifecycle {
            Lifecycle::Active(lease) => Some(&lease.worker),
            Lifecycle::Granted { worker, .. } => Some(worker),
            _ => None,
        };
        if self.target.json {
            let state = after.lifecycle.public();
            say_json(&json!({ "id": self.id, "state": state, "holder": holder }));
        } else {
            let of = holder.map_or_else(String::new, |holder| format!(" from {holder}"));
            let then = match after.lifecycle {
                Lifecycle::Blocked(_) => ", and is blocked by its limit",
                Lifecycle::Waiting(_) => ", and waits in its lane",
                // Another worker has claimed it already.
                _ => "",
            };
            say(&format!("Task {} is revoked{of}{then}.", self.id));
        }
        Ok(engine.shutdown().await?)
    }
}
