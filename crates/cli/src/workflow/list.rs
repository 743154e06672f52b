use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use windlass::{Kind, LaneName, Lifecycle, PublicState, Task, TaskFilter};

use crate::duration::now;
use crate::error::CliError;
use crate::output::{one_line, say, say_json, say_table};
use crate::target::Target;
use crate::task::{Page, first_line, since, state, task_json};

const EXAMPLES: &str = "Examples:
  windlass workflow list --state suspended
  windlass workflow list --kind order --limit 200
  windlass workflow list --all --json | jq -r .id";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct List {
    /// Only workflows in this state; a waiting workflow is suspended.
    #[arg(long, value_parser = state(), help_heading = "Which")]
    state: Option<PublicState>,
    /// Only workflows of this kind.
    #[arg(long, help_heading = "Which")]
    kind: Option<Kind>,
    /// Only workflows of this lane.
    #[arg(long, help_heading = "Which")]
    lane: Option<LaneName>,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    target: Target,
}

impl List {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let Self { state, lane, kind, .. } = self;
        let filter = TaskFilter { state, lane, kind, parent: None };
        let (json, now) = (self.target.json, now());
        let mut shown: u64 = 0;
        let show = |workflows: &[Arc<Task>]| {
            shown += workflows.len() as u64;
            if json {
                workflows.iter().for_each(|task| say_json(&workflow_json(task)));
                return;
            }
            let rows = workflows.iter().map(|task| {
                let state = task.workflow.as_deref();
                [
                    task.id.to_string(),
                    task.kind.to_string(),
                    task.lifecycle.public().to_string(),
                    task.execution.to_string(),
                    state.map_or(0, |state| state.turns).to_string(),
                    state.map_or(0, |state| state.next_step).to_string(),
                    since(task, now),
                    note(task),
                ]
            });
            let header = ["id", "kind", "state", "execution", "turns", "steps", "since", ""];
            say_table(header, rows.collect());
        };
        let page = self.page.only(|task| task.workflow.is_some());
        let more = page.of(&engine, &self.target.tenant, filter, show).await?;
        if !json && shown == 0 {
            say("There is no such workflow.");
        }
        if let (false, Some(id)) = (json, more) {
            say(&format!("There are more: add --after {id}, or --all for everything."));
        }
        Ok(engine.shutdown().await?)
    }
}

/// The JSON of a workflow.
pub(super) fn workflow_json(task: &Task) -> Value {
    let mut fields = task_json(task);
    let Some(state) = task.workflow.as_deref() else { return fields };
    fields["version"] = json!(state.version);
    fields["turns"] = state.turns.into();
    fields["first_step"] = state.first_step.into();
    fields["next_step"] = state.next_step.into();
    fields["cancel_reason"] = json!(state.cancel_reason);
    fields["sticky_worker"] = json!(state.sticky.as_ref().map(|sticky| &sticky.worker));
    fields
}

/// A one-line note on the current state.
fn note(task: &Task) -> String {
    let cancelling = task.workflow.as_ref().and_then(|state| state.cancel_reason.as_ref());
    match (&task.lifecycle, cancelling, &task.progress) {
        (lifecycle, _, _) if lifecycle.ended_at().is_some() => first_line(task),
        // Its worker reports why it cannot continue.
        (Lifecycle::Delayed { .. }, _, Some(progress)) => one_line(&progress.message),
        (_, Some(reason), _) => format!("cancelling: {}", one_line(reason)),
        // A workflow between two turns needs no note.
        (Lifecycle::Suspended(_), _, _) => String::new(),
        _ => first_line(task),
    }
}
