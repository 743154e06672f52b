use clap::{ArgGroup, Args};
use serde_json::json;
use windlass::{Engine, Error, Rejection, TaskId};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;
use crate::workflow::bulk_delete::BulkDeleteArgs;
use crate::workflow::confirm::confirm;

const EXAMPLES: &str = "Examples:
  windlass workflow delete order-42 --yes
  windlass workflow delete --state completed --kind order --older-than 30d --dry-run
  windlass workflow delete --state completed --kind order --older-than 30d --yes
  windlass workflow delete order-43 --force --yes

A workflow is deleted with its history and its children. A running one is left
unchanged, unless --force ends it first. Each is deleted as a whole or not at all. Exit code 3 when
one is rejected.";

#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    group = ArgGroup::new("what")
        .args(["id", "state", "kind", "lane", "older_than"])
        .required(true)
        .multiple(true)
)]
pub(crate) struct Delete {
    /// The id of the workflow, as `workflow list` shows it.
    #[arg(conflicts_with_all = ["state", "kind", "lane", "older_than", "limit", "dry_run"])]
    id: Option<TaskId>,
    #[command(flatten)]
    which: BulkDeleteArgs,
    /// End running ones first, without running their code.
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation; needed without a terminal.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

impl Delete {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        match &self.id {
            Some(id) => self.one(&engine, id).await?,
            None => self.which.run(&engine, &self.target, self.force, self.yes).await?,
        }
        Ok(engine.shutdown().await?)
    }

    async fn one(&self, engine: &Engine, id: &TaskId) -> Result<(), CliError> {
        let task = self.target.workflow(engine, id).await?;
        if task.lifecycle.ended_at().is_none() && !self.force {
            return Err(CliError::StillRuns(id.to_string()));
        }
        let open = engine.child_counts(&task.task_key()).await?.open;
        if open > 0 && !self.force {
            return Err(Error::Rejected(Rejection::ChildrenOpen { open }).into());
        }
        let question = format!("Delete workflow {id}, its history and its children permanently?");
        confirm(self.yes, &question)?;
        let tasks = engine.delete_workflow(&task.task_key(), self.force).await?;
        if self.target.json {
            say_json(&json!({ "id": id, "deleted": true, "tasks": tasks }));
        } else {
            say(&format!("Workflow {id} is deleted."));
        }
        Ok(())
    }
}
