use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use windlass::{Kind, LaneName, PublicState, Task, TaskFilter, TaskId};

use crate::duration::now;
use crate::error::CliError;
use crate::output::{say, say_json, say_table};
use crate::target::Target;
use crate::task::{Page, attempts, first_line, since, task_json};

const EXAMPLES: &str = "Examples:
  windlass task list --state active
  windlass task list --lane email --kind welcome --limit 200
  windlass task list --parent order-7 --state failed
  windlass task list --all --json | jq -r .id";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct List {
    /// Only tasks in this state.
    #[arg(long, value_parser = state(), help_heading = "Which")]
    state: Option<PublicState>,
    /// Only tasks of this lane.
    #[arg(long, help_heading = "Which")]
    lane: Option<LaneName>,
    /// Only tasks of this kind.
    #[arg(long, help_heading = "Which")]
    kind: Option<Kind>,
    /// Only the children of this task.
    #[arg(long, value_name = "ID", help_heading = "Which")]
    parent: Option<TaskId>,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn state() -> impl clap::builder::TypedValueParser<Value = PublicState> {
    let names = PublicState::ALL.iter().map(|state| state.as_str());
    PossibleValuesParser::new(names).map(|name| {
        let found = PublicState::ALL.iter().find(|state| state.as_str() == name);
        *found.expect("the parser only accepts names of states")
    })
}

impl List {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let Self { state, lane, kind, parent, .. } = self;
        let filter = TaskFilter { state, lane, kind, parent };
        let (json, now) = (self.target.json, now());
        let mut shown: u64 = 0;
        let show = |tasks: &[Arc<Task>]| {
            shown += tasks.len() as u64;
            if json {
                tasks.iter().for_each(|task| say_json(&task_json(task)));
                return;
            }
            let rows = tasks.iter().map(|task| {
                [
                    task.id.to_string(),
                    task.kind.to_string(),
                    task.lane.to_string(),
                    task.lifecycle.public().to_string(),
                    attempts(task),
                    since(task, now),
                    first_line(task),
                ]
            });
            let header = ["id", "kind", "lane", "state", "attempts", "since", ""];
            say_table(header, rows.collect());
        };
        let more = self.page.of(&engine, &self.target.tenant, filter, show).await?;
        if !json && shown == 0 {
            say("There is no such task.");
        }
        if let (false, Some(id)) = (json, more) {
            say(&format!("There are more: add --after {id}, or --all for everything."));
        }
        Ok(engine.shutdown().await?)
    }
}
