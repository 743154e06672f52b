use clap::Args;
use serde_json::{Value, json};
use windlass::TaskId;

use crate::duration::now;
use crate::error::CliError;
use crate::output::{say, say_json, time, with_times};
use crate::target::Target;
use crate::task::why::evidence::Evidence;
use crate::task::why::explain::explain;

#[derive(Debug, Args)]
pub(crate) struct Why {
    id: TaskId,
    #[command(flatten)]
    target: Target,
}

impl Why {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.task(&engine, &self.id).await?;
        let why = engine.handle(task.task_key()).why().await;
        let why = why.map_err(|error| CliError::about("task", &self.id, error))?;
        let evidence = Evidence::gather(&engine, &task, &why, now()).await?;
        let found = explain(&task, &why, &evidence);
        if self.target.json {
            let mut fields = json!({
                "id": task.id,
                "state": task.lifecycle.public(),
                "explanation": found.sentence,
                "help": found.help,
                "last_claim": evidence.last_claim.as_ref().map(|claim| {
                    json!({ "worker": claim.worker, "at": time(claim.at) })
                }),
            });
            let facts = serde_json::to_value(&why).unwrap_or_default();
            if let (Value::Object(fields), Value::Object(facts)) = (&mut fields, facts) {
                fields.extend(with_times(facts));
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
