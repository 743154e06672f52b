use std::io::{IsTerminal as _, Write as _, stdin, stdout};

use clap::Args;
use serde_json::json;
use windlass::{Error, Rejection, TaskId};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// Do not ask first; needed where nobody can be asked.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

impl Delete {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.workflow(&engine, &self.id).await?;
        if task.lifecycle.ended_at().is_none() {
            return Err(CliError::StillRuns(self.id.to_string()));
        }
        let open = engine.child_counts(&task.task_key()).await?.open;
        if open > 0 {
            return Err(Error::Rejected(Rejection::ChildrenOpen { open }).into());
        }
        if !self.yes && !is_confirmed(&self.id)? {
            return Err(CliError::NotConfirmed);
        }
        let tasks = engine.delete_workflow(&task.task_key(), false).await?;
        if self.target.json {
            say_json(&json!({ "id": self.id, "deleted": true, "tasks": tasks }));
        } else {
            say(&format!("Workflow {} is forgotten.", self.id));
        }
        Ok(engine.shutdown().await?)
    }
}

fn is_confirmed(id: &TaskId) -> Result<bool, CliError> {
    if !stdin().is_terminal() {
        return Ok(false);
    }
    let failed = |error| CliError::System { what: "the answer cannot be read", error };
    let mut out = stdout();
    write!(out, "Forget workflow {id}, its history and its children for good? [y/N] ")
        .map_err(failed)?;
    out.flush().map_err(failed)?;
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
