use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use windlass::{Engine, Task, TaskId};

use crate::duration::now;
use crate::error::CliError;
use crate::output::{say, say_json, time, with_times};
use crate::target::Target;
use crate::task::why::evidence::Evidence;
use crate::task::why::explain::explain;

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    #[command(flatten)]
    target: Target,
}

impl Why {
    /// The task and its explanation, as of the same time.
    async fn fetch(&self, engine: &Engine) -> Result<(Arc<Task>, windlass::Why), CliError> {
        loop {
            let before = self.target.task(engine, &self.id).await?;
            let why = engine.handle(before.task_key()).why().await;
            let why = why.map_err(|error| CliError::for_object("task", &self.id, error))?;
            if self.target.task(engine, &self.id).await? == before {
                return Ok((before, why));
            }
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (task, why) = self.fetch(&engine).await?;
        let evidence = Evidence::gather(&engine, &task, &why, now()).await?;
        let found = explain(&task, &why, &evidence);
        if self.target.json {
            let mut fields = json!({
                "id": task.id,
                "state": task.lifecycle.public(),
                "why": null,
                "facts": null,
                "explanation": found.sentence,
                "help": found.help,
                "last_claim": evidence.last_claim.as_ref().map(|claim| {
                    json!({ "worker": claim.worker, "at": time(claim.at) })
                }),
            });
            if let Ok(Value::Object(mut facts)) = serde_json::to_value(&why) {
                fields["why"] = facts.remove("why").unwrap_or_default();
                fields["facts"] = Value::Object(with_times(facts));
            }
            say_json(&fields);
        } else {
            say(&found.sentence);
            if let Some(help) = found.help {
                say(&help);
            }
        }
        Ok(engine.shutdown().await?)
    }
}
