use std::sync::Arc;

use clap::Args;
use windlass::{Lifecycle, Task};

use crate::dlq::options::Which;
use crate::duration::now;
use crate::error::CliError;
use crate::output::{one_line, say, say_json, say_table};
use crate::target::Target;
use crate::task::{Page, attempts, since, task_json};

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    target: Target,
}

impl List {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (json, now) = (self.target.json, now());
        let mut shown = false;
        let show = |tasks: &[Arc<Task>]| {
            shown = true;
            if json {
                tasks.iter().for_each(|task| say_json(&task_json(task)));
                return;
            }
            let rows = tasks.iter().map(|task| {
                let (class, reason) = match &task.lifecycle {
                    Lifecycle::Failed { class, reason, .. } => (class.as_str(), one_line(reason)),
                    // The task was replayed since the page was read.
                    _ => ("", String::new()),
                };
                [
                    task.id.to_string(),
                    task.kind.to_string(),
                    task.lane.to_string(),
                    attempts(task),
                    since(task, now),
                    class.to_owned(),
                    reason,
                ]
            });
            say_table(
                ["id", "kind", "lane", "attempts", "failed", "class", "reason"],
                rows.collect(),
            );
        };
        let more = self.page.of(&engine, &self.target.tenant, self.which.filter(), show).await?;
        if json {
            return Ok(engine.shutdown().await?);
        }
        if shown {
            say("Run them again with windlass dlq replay ID..., or --all.");
        } else {
            say("No task has failed.");
        }
        if let Some(id) = more {
            say(&format!("There are more: add --after {id}, or --all for everything."));
        }
        Ok(engine.shutdown().await?)
    }
}
