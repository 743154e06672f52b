use std::time::Duration;

use clap::Args;
use serde_json::json;
use windlass::{TaskId, WorkerId};

use crate::duration;
use crate::error::CliError;
use crate::output::{say, say_json, time};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    /// The worker that may claim it, as `worker list` shows it: one that accepts grants or
    /// sessions, or whose program claims the task by its id.
    worker: WorkerId,
    /// How long the grant lasts.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    #[arg(value_parser = duration::parse)]
    ttl: Duration,
    #[command(flatten)]
    target: Target,
}

impl Grant {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.key(&self.id);
        let granted = engine.grant(&task, self.worker.clone(), self.ttl).await;
        let until = granted.map_err(|error| {
            CliError::for_object("task", &self.id, error).named(&[("worker", "the worker")])
        })?;
        if self.target.json {
            say_json(&json!({ "id": self.id, "worker": self.worker, "until": time(until) }));
        } else {
            let until = duration::moment(until, duration::now());
            say(&format!("Task {} is granted to {} until {until}.", self.id, self.worker));
        }
        Ok(engine.shutdown().await?)
    }
}
