use clap::Args;
use serde_json::json;
use windlass::{PublicState, TaskId, command};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

const EXAMPLES: &str = "Examples:
  windlass workflow cancel order-42 --reason 'the customer has left'
  windlass workflow cancel order-42 --force

A cancelled workflow gets `Cancelled` from what it awaits, can clean up, and ends. That needs a
worker with its code. With --force it ends at once, and none of its code runs.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cancel {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// The reason, passed to its code and stored with the event.
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
    /// End it at once, without running its code.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

impl Cancel {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let before = self.target.workflow(&engine, &self.id).await?;
        let (task, reason) = (before.task_key(), self.reason);
        if self.force {
            engine.submit(command::Cancel { task, reason }).await?;
        } else {
            engine.submit(command::RequestCancel { task, reason }).await?;
        }
        let after = self.target.workflow(&engine, &self.id).await?;
        let (state, id) = (after.lifecycle.public(), &self.id);
        if self.target.json {
            let cancel_requested = state != PublicState::Cancelled;
            say_json(&json!({ "id": id, "state": state, "cancel_requested": cancel_requested }));
        } else if state == PublicState::Cancelled {
            say(&format!("Workflow {id} is cancelled."));
        } else {
            say(&format!(
                "Cancellation of workflow {id} is requested: a worker with its code handles it."
            ));
        }
        Ok(engine.shutdown().await?)
    }
}
