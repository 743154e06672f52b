use std::path::Path;
use std::time::Instant;

use clap::Args;
use tempfile::TempDir;
use windlass::{Config, Engine, StoreUrl, Tenant};

use crate::demo::effects::Effects;
use crate::demo::error::{DemoError, system_error};
use crate::demo::plan::Plan;
use crate::demo::printer::{Printer, seconds};
use crate::demo::run::{DemoRecord, DemoRun};
use crate::demo::tally::Facts;
use crate::demo::worker_processes::WorkerProcesses;
use crate::signals::Signals;

/// Where the figures of the table come from.
const SOURCES: &str = "\
From the log and the records of the store, except for requested tasks and late writes, which are
counted from its responses, and effects, which are lines of a file that the handlers append to.";

/// Run a demo of a few seconds: worker processes on one SQLite file, one of them killed.
///
/// Queues tasks in a temporary file, runs two worker processes, kills one while it is busy, stalls
/// another one, and prints the results. Some tasks fail at first, a few always fail, one is retried
/// until its attempts are used up, one is cancelled, one is requested twice. Exits with 1 if
/// anything was lost or happened twice.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The number of tasks.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(20..=20_000))]
    tasks: u64,
    /// Keep the database file, to inspect it.
    #[arg(long)]
    keep: bool,
    /// Print one JSON object on standard output, nothing else.
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<(), DemoError> {
        let folder = tempfile::Builder::new()
            .prefix("windlass-demo-")
            .tempdir()
            .map_err(system_error("a temporary folder"))?;
        let shown = self.show(&folder).await;
        if self.keep && shown.is_ok() {
            // Its path was printed.
            let _ = folder.keep();
        } else {
            folder.close().map_err(system_error("removing the temporary folder"))?;
        }
        match shown {
            Err(DemoError::Unread) => Ok(()),
            other => other,
        }
    }

    /// Leaves no process behind, even on an error.
    async fn show(&self, folder: &TempDir) -> Result<(), DemoError> {
        let store = StoreUrl::Sqlite(folder.path().join("demo.db"));
        let effects = folder.path().join("effects.log");
        let mut signals = Signals::listen().map_err(|error| match error {
            crate::error::CliError::System { what, error } => DemoError::System { what, error },
            other => unreachable!("unexpected error while listening: {other}"),
        })?;
        let engine = Engine::open_with(&store, Config::default()).await?;
        let mut workers = WorkerProcesses::new(&store, &effects)?;
        let plan = Plan::of(self.tasks);
        let printer = Printer::new(plan.count(), self.json);
        let run = async {
            let started = Instant::now();
            let record = DemoRun::new(&engine, &mut workers, &printer).run(&plan).await?;
            let facts = gather(&engine, &plan, record, &effects, started).await?;
            self.conclude(&facts, &printer, &store)
        };
        let shown = tokio::select! {
            shown = run => shown,
            () = signals.next() => Err(DemoError::Interrupted),
        };
        printer.end();
        workers.end().await;
        engine.shutdown().await?;
        shown
    }

    fn conclude(
        &self,
        facts: &Facts,
        printer: &Printer,
        store: &StoreUrl,
    ) -> Result<(), DemoError> {
        printer.end();
        let broken = facts.checks().iter().filter(|check| !check.holds).count();
        if self.json {
            let mut object = facts.json();
            object["store"] = self.keep.then(|| store.to_string()).into();
            printer.print_always(&object.to_string())?;
        } else {
            printer.print("")?;
            printer.table("What happened", &facts.rows())?;
            printer.print(SOURCES)?;
            printer.print("")?;
            for check in facts.checks() {
                let mark = if check.holds { "ok " } else { "NOT" };
                printer.print(&format!("{mark}  {}", check.what))?;
            }
            printer.print(&format!("\nThe demo took {}.", seconds(facts.took)))?;
            self.point_further(facts, printer, store)?;
        }
        if broken > 0 { Err(DemoError::Unsound(broken)) } else { Ok(()) }
    }

    fn point_further(
        &self,
        facts: &Facts,
        printer: &Printer,
        store: &StoreUrl,
    ) -> Result<(), DemoError> {
        if !self.keep {
            return printer.print("With --keep the file is not deleted, and you can inspect it.");
        }
        printer.print("The file is not deleted. Inspect it:")?;
        let dead = facts.records.iter().find(|task| task.lifecycle.public().as_str() == "failed");
        if let Some(task) = dead {
            printer.print(&format!("  windlass task why {} --store {store}", task.id))?;
        }
        printer.print(&format!("  windlass dlq list --store {store}"))?;
        printer.print(&format!("  windlass events --store {store}"))
    }
}

/// Collects the facts from the store after all workers have exited.
async fn gather(
    engine: &Engine,
    plan: &Plan,
    record: DemoRecord,
    effects: &Path,
    started: Instant,
) -> Result<Facts, DemoError> {
    let mut records = Vec::new();
    loop {
        let last = records.last().map(|task: &std::sync::Arc<windlass::Task>| task.id.clone());
        let filter = windlass::TaskFilter::default();
        let page = engine.tasks(&Tenant::default(), &filter, last.as_ref(), 1_000).await?;
        if page.is_empty() {
            break;
        }
        records.extend(page);
    }
    Ok(Facts {
        tasks: plan.count(),
        broken: plan.broken,
        failing: plan.failing.clone(),
        hopeless: plan.hopeless.clone(),
        requests: record.requests,
        repeated: record.repeated,
        killed: record.killed,
        stalled: record.stalled,
        history: record.history,
        records,
        effects: Effects::read(effects)?,
        took: started.elapsed(),
    })
}
