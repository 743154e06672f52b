//! Bulk deletion of workflows.

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use windlass::{BulkDelete, BulkDeleted, Engine, Kind, LaneName, PublicState, TaskId};

use crate::duration::now;
use crate::error::CliError;
use crate::output::{counted, say, say_json, say_table};
use crate::target::Target;
use crate::task::state;
use crate::workflow::confirm::confirm;

/// How many workflows are deleted between two updates of the progress bar.
const PAGE: usize = 100;

#[derive(Debug, Args)]
pub(super) struct BulkDeleteArgs {
    /// Workflows in this state, instead of one by its id.
    #[arg(long, alias = "status", value_parser = state(), help_heading = "Many at once")]
    state: Option<PublicState>,
    /// Workflows of this kind. Children are deleted only with their parents.
    #[arg(long, alias = "name", help_heading = "Many at once")]
    kind: Option<Kind>,
    /// Workflows of this lane.
    #[arg(long, help_heading = "Many at once")]
    lane: Option<LaneName>,
    /// Workflows that ended longer ago than this, as in 30d.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = crate::duration::parse,
        help_heading = "Many at once"
    )]
    older_than: Option<Duration>,
    /// The maximum number.
    #[arg(long, value_name = "N", help_heading = "Many at once")]
    limit: Option<usize>,
    /// List them, and change nothing.
    #[arg(long, help_heading = "Many at once")]
    dry_run: bool,
}

/// The results so far.
#[derive(Debug)]
struct Tally {
    json: bool,
    bar: ProgressBar,
    workflows: u64,
    tasks: u64,
    rejected: Vec<[String; 3]>,
}

impl BulkDeleteArgs {
    fn bulk_delete<'e>(&self, engine: &'e Engine, target: &Target) -> BulkDelete<'e> {
        let mut bulk_delete = engine.delete_workflows().tenant(target.tenant.clone());
        if let Some(state) = self.state {
            bulk_delete = bulk_delete.state(state);
        }
        if let Some(kind) = &self.kind {
            bulk_delete = bulk_delete.kind(kind.clone());
        }
        if let Some(lane) = &self.lane {
            bulk_delete = bulk_delete.lane(lane.clone());
        }
        match self.older_than {
            Some(age) => {
                let ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                bulk_delete.ended_before(now().minus_ms(ms))
            }
            None => bulk_delete,
        }
    }

    pub(super) async fn run(
        &self,
        engine: &Engine,
        target: &Target,
        force: bool,
        yes: bool,
    ) -> Result<(), CliError> {
        let bulk_delete = self.bulk_delete(engine, target).force(force);
        if self.dry_run {
            return self.show(bulk_delete, target.json).await;
        }
        let most = self.limit.map_or(String::new(), |limit| format!(", {limit} at most,"));
        let question = format!("Delete all matching workflows{most} permanently?");
        confirm(yes, &question)?;
        let mut tally = Tally::new(target.json);
        let (mut after, mut remaining) = (None, self.limit.unwrap_or(usize::MAX));
        while remaining > 0 {
            let piece = bulk_delete.clone().after(after).limit(remaining.min(PAGE));
            let cleared = piece.await?;
            remaining -= cleared.deleted.len() + cleared.rejected.len();
            after = cleared.next.clone();
            tally.add(cleared);
            if after.is_none() {
                break;
            }
        }
        tally.report()
    }

    /// Lists what would be deleted.
    async fn show(&self, bulk_delete: BulkDelete<'_>, as_json: bool) -> Result<(), CliError> {
        let (mut after, mut remaining): (Option<TaskId>, _) =
            (None, self.limit.unwrap_or(usize::MAX));
        let mut count: u64 = 0;
        while remaining > 0 {
            let piece = bulk_delete.clone().after(after).limit(remaining.min(PAGE));
            let (found, next) = piece.find().await?;
            remaining -= found.len();
            count += found.len() as u64;
            for task in found {
                if as_json {
                    say_json(&json!({ "id": task.id, "deleted": false, "dry_run": true }));
                } else {
                    say(&format!("{}  {}  {}", task.id, task.kind, task.lifecycle.public()));
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        if !as_json {
            say(&format!("{} would be deleted; nothing was.", counted(count, "workflow")));
        }
        Ok(())
    }
}

impl Tally {
    fn new(json: bool) -> Self {
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("deleting {spinner} {pos} {per_sec}") {
            bar.set_style(style);
        }
        Self { json, bar, workflows: 0, tasks: 0, rejected: Vec::new() }
    }

    fn add(&mut self, cleared: BulkDeleted) {
        self.bar.inc(cleared.deleted.len() as u64);
        for (id, tasks) in cleared.deleted {
            self.workflows += 1;
            self.tasks += tasks as u64;
            if self.json {
                say_json(&json!({ "id": id, "deleted": true, "tasks": tasks }));
            }
        }
        for (id, error) in cleared.rejected {
            let (code, message) = (error.code(), error.to_string());
            if self.json {
                let error = json!({ "code": code, "message": message });
                say_json(&json!({ "id": id, "deleted": false, "error": error }));
            }
            self.rejected.push([id.to_string(), code.to_owned(), message]);
        }
    }

    fn report(self) -> Result<(), CliError> {
        self.bar.finish_and_clear();
        let rejected = self.rejected.len() as u64;
        if !self.json {
            let (workflows, tasks) =
                (counted(self.workflows, "workflow"), counted(self.tasks, "task"));
            let more = if rejected == 0 { "." } else { "; rejected:" };
            say(&format!("Deleted {workflows}, {tasks} in all{more}"));
            if rejected > 0 {
                say_table(["id", "code", "reason"], self.rejected);
            }
        }
        if rejected == 0 { Ok(()) } else { Err(CliError::NotDeleted(rejected)) }
    }
}
