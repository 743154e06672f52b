use std::time::Duration;

use clap::Args;
use windlass::{Error, Lifecycle, Task, TaskId};

use crate::duration::{self, brief};
use crate::error::CliError;
use crate::output::{one_line, say, say_json};
use crate::target::Target;
use crate::task::json::task_json;

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    /// Stop waiting after this time, with exit code 1 [default: never]
    #[arg(long, value_parser = duration::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    target: Target,
}

impl Wait {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let handle = engine.handle(self.target.key(&self.id));
        let ended = match self.timeout {
            None => handle.wait().await,
            Some(timeout) => match tokio::time::timeout(timeout, handle.wait()).await {
                Ok(ended) => ended,
                Err(_) => {
                    let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                    let (name, waited) = (self.id.to_string(), brief(ms));
                    return Err(CliError::TimedOut { what: "task", name, waited });
                }
            },
        };
        let task = ended.map_err(|error| CliError::for_object("task", &self.id, error))?;
        if self.target.json {
            say_json(&task_json(&task));
        }
        completed(&task)?;
        if !self.target.json {
            say(&format!("Task {} is completed.", task.id));
        }
        Ok(engine.shutdown().await?)
    }
}

fn completed(task: &Task) -> Result<(), Error> {
    let reason = match &task.lifecycle {
        Lifecycle::Completed { .. } => return Ok(()),
        Lifecycle::Failed { reason, .. } | Lifecycle::Cancelled { reason, .. } => one_line(reason),
        _ => "its deadline passed".to_owned(),
    };
    let state = task.lifecycle.public();
    Err(Error::NotCompleted { id: task.id.clone(), state, reason })
}
