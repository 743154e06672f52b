use std::sync::Arc;

use clap::{ArgGroup, Args};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use windlass::{
    Command, Engine, Error, Lifecycle, Outcome, PublicState, Rejection, Task, TaskId, command,
};

use crate::dlq::options::Which;
use crate::error::CliError;
use crate::output::{counted, say, say_json, say_table};
use crate::target::Target;
use crate::task::Pages;

/// How many tasks are replayed in one transaction.
const PAGE: usize = 500;

const EXAMPLES: &str = "Examples:
  windlass dlq replay 0199a0b2-7c1e-7000-8000-000000000001
  windlass dlq replay --all --lane email
  windlass dlq replay --all

Replaying twice has the effect of once. Exit code 3 when a task was rejected.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("chosen").required(true).args(["ids", "all"])))]
pub(super) struct Replay {
    /// The ids of the tasks, as `dlq list` shows them.
    #[arg(conflicts_with_all = ["all", "lane", "kind"])]
    ids: Vec<TaskId>,
    /// All failed tasks, or those of a lane or a kind.
    #[arg(long, help_heading = "Which")]
    all: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    target: Target,
}

/// The results so far.
#[derive(Debug)]
struct Tally {
    json: bool,
    bar: ProgressBar,
    replayed: u64,
    rejected: Vec<[String; 3]>,
}

impl Replay {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let mut tally = Tally::new(self.target.json, self.total(&engine).await?);
        if self.all {
            let filter = self.which.filter();
            let mut pages = Pages::new(&engine, &self.target.tenant, filter, None);
            loop {
                let page = pages.next(PAGE).await?;
                if page.is_empty() {
                    break;
                }
                tally.replay(&engine, page).await?;
            }
        } else {
            for ids in self.ids.chunks(PAGE) {
                let failed = self.failed(&engine, ids, &mut tally).await?;
                tally.replay(&engine, failed).await?;
            }
        }
        tally.report()?;
        Ok(engine.shutdown().await?)
    }

    /// The number of tasks to replay, if known.
    async fn total(&self, engine: &Engine) -> Result<Option<u64>, Error> {
        if !self.all {
            return Ok(Some(self.ids.len() as u64));
        }
        if !self.which.is_everything() {
            return Ok(None);
        }
        let counts = engine.count_by_state(&self.target.tenant).await?;
        Ok(Some(counts.get(PublicState::Failed.as_str()).copied().unwrap_or(0)))
    }

    /// The named tasks that have failed; the others are rejected.
    async fn failed(
        &self,
        engine: &Engine,
        ids: &[TaskId],
        tally: &mut Tally,
    ) -> Result<Vec<Arc<Task>>, Error> {
        let mut failed = Vec::new();
        for id in ids {
            match engine.task(&self.target.key(id)).await? {
                None => tally.reject(id, &Rejection::TaskNotFound.into()),
                Some(task) if matches!(task.lifecycle, Lifecycle::Failed { .. }) => {
                    failed.push(task);
                }
                Some(task) => tally.not_failed(&task),
            }
        }
        Ok(failed)
    }
}

impl Tally {
    fn new(json: bool, total: Option<u64>) -> Self {
        let bar = match (json, total) {
            (true, _) => ProgressBar::hidden(),
            (false, Some(total)) => ProgressBar::new(total),
            (false, None) => ProgressBar::new_spinner(),
        };
        let template = match total {
            Some(_) => "replaying [{bar:40}] {pos}/{len} {per_sec} {eta}",
            None => "replaying {spinner} {pos} {per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { json, bar, replayed: 0, rejected: Vec::new() }
    }

    async fn replay(&mut self, engine: &Engine, tasks: Vec<Arc<Task>>) -> Result<(), Error> {
        let replays = tasks.iter().map(|task| {
            let (task, execution) = (task.task_key(), task.execution);
            Command::from(command::Replay { task, execution })
        });
        let results = engine.submit_many(replays.collect()).await?;
        for (task, result) in tasks.iter().zip(results) {
            match result {
                Ok(Outcome::Replayed { execution }) => self.accept(&task.id, execution),
                Ok(other) => unreachable!("unexpected outcome of a replay: {other:?}"),
                Err(Error::Rejected(rejection)) => self.reject(&task.id, &rejection.into()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn accept(&mut self, id: &TaskId, execution: u32) {
        self.bar.inc(1);
        self.replayed += 1;
        if self.json {
            say_json(&json!({ "id": id, "replayed": true, "execution": execution }));
        }
    }

    fn reject(&mut self, id: &TaskId, error: &Error) {
        self.note(id, error.code(), &error.to_string());
    }

    fn not_failed(&mut self, task: &Task) {
        let state = task.lifecycle.public();
        let help = if task.lifecycle.ended_at().is_some() {
            format!("; windlass task replay {} replays it anyway", task.id)
        } else {
            String::new()
        };
        self.note(&task.id, "not_failed", &format!("it has not failed, it is {state}{help}"));
    }

    fn note(&mut self, id: &TaskId, code: &str, message: &str) {
        self.bar.inc(1);
        if self.json {
            let error = json!({ "code": code, "message": message });
            say_json(&json!({ "id": id, "replayed": false, "error": error }));
        }
        self.rejected.push([id.to_string(), code.to_owned(), message.to_owned()]);
    }

    fn report(self) -> Result<(), CliError> {
        self.bar.finish_and_clear();
        let rejected = self.rejected.len() as u64;
        let not_there =
            self.rejected.iter().all(|[_, code, _]| code == Rejection::TaskNotFound.code());
        if !self.json {
            let tasks = counted(self.replayed, "task");
            say(&format!("Replayed {tasks}{}", if rejected == 0 { "." } else { "; rejected:" }));
            if rejected > 0 {
                say_table(["id", "code", "reason"], self.rejected);
            }
        }
        if rejected == 0 {
            return Ok(());
        }
        Err(CliError::NotReplayed { rejected, not_there })
    }
}
