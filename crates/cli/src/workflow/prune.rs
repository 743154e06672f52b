use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::json;
use windlass::workflow::Execution;
use windlass::{Engine, TaskId, TaskKey, Timestamp};

use crate::duration::now;
use crate::error::CliError;
use crate::output::{counted, say, say_json};
use crate::target::Target;
use crate::workflow::executions::past_executions;

const EXAMPLES: &str = "Examples:
  windlass workflow prune feed-7 --keep 10
  windlass workflow prune feed-7 --older-than 7d --dry-run
  windlass workflow prune feed-7 --keep 3 --older-than 7d

The current execution is never deleted. With both, an execution is deleted only if it is older
and not among the last.";

#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    group = ArgGroup::new("which").args(["keep", "older_than"]).required(true).multiple(true)
)]
pub(crate) struct Prune {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// How many of the last executions before the current one are retained.
    #[arg(long, value_name = "N")]
    keep: Option<u32>,
    /// Only executions that ended longer ago than this, as in 7d.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    older_than: Option<Duration>,
    /// Print how many, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

impl Prune {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.workflow(&engine, &self.id).await?;
        let (key, keep) = (task.task_key(), self.keep.unwrap_or(0));
        let before = self.older_than.map(|age| {
            let ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            now().minus_ms(ms)
        });
        let pruned = if self.dry_run {
            let end = task.execution.saturating_sub(keep);
            would_go(&engine, &key, end, before).await?
        } else {
            engine.prune_executions(&key, keep, before).await?
        };
        let dry_run = self.dry_run;
        if self.target.json {
            say_json(&json!({ "id": self.id, "pruned": pruned, "dry_run": dry_run }));
        } else {
            let executions = counted(pruned as u64, "execution");
            let text = match dry_run {
                true => format!("{executions} of {} would be deleted; none was.", self.id),
                false => format!("Deleted {executions} of workflow {}.", self.id),
            };
            say(&text);
        }
        Ok(engine.shutdown().await?)
    }
}

/// Counts the oldest executions before `end` that ended before `before`, without a gap.
async fn would_go(
    engine: &Engine,
    workflow: &TaskKey,
    end: u32,
    before: Option<Timestamp>,
) -> Result<usize, CliError> {
    let goes = |execution: &&Execution| {
        execution.number < end && before.is_none_or(|before| execution.ended_at < before)
    };
    let all = past_executions(engine, workflow).await?;
    Ok(all.iter().take_while(goes).count())
}
