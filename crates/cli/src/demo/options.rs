use std::path::Path;
use std::time::Instant;

use clap::Args;
use tempfile::TempDir;
use windlass::{Config, Engine, StoreUrl, Tenant};

use crate::demo::crew::Crew;
use crate::demo::effects::Effects;
use crate::demo::error::{DemoError, while_doing};
use crate::demo::plan::Plan;
use crate::demo::play::{Play, Played};
use crate::demo::tally::Facts;
use crate::demo::tell::{Teller, seconds};
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
            .map_err(while_doing("a temporary folder"))?;
        let shown = self.show(&folder).await;
        if self.keep && shown.is_ok() {
            // Its path was printed.
            let _ = folder.keep();
        } else {
            folder.close().map_err(while_doing("removing the temporary folder"))?;
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
        let mut crew = Crew::new(&store, &effects)?;
        let plan = Plan::of(self.tasks);
        let teller = Teller::new(plan.count(), self.json);
        let playing = async {
            let begun = Instant::now();
            let played = Play::new(&engine, &mut crew, &teller).run(&plan).await?;
            let facts = gather(&engine, &plan, played, &effects, begun).await?;
            self.conclude(&facts, &teller, &store)
        };
        let shown = tokio::select! {
            shown = playing => shown,
            () = signals.next() => Err(DemoError::Interrupted),
        };
        teller.end();
        crew.end().await;
        engine.shutdown().await?;
        shown
    }

    fn conclude(&self, facts: &Facts, teller: &Teller, store: &StoreUrl) -> Result<(), DemoError> {
        teller.end();
        let broken = facts.checks().iter().filter(|check| !check.holds).count();
        if self.json {
            let mut object = facts.json();
            object["store"] = self.keep.then(|| store.to_string()).into();
            teller.print(&object.to_string())?;
        } else {
            teller.tell("")?;
            teller.table("What happened", &facts.rows())?;
            teller.tell(SOURCES)?;
            teller.tell("")?;
            for check in facts.checks() {
                let mark = if check.holds { "ok " } else { "NOT" };
                teller.tell(&format!("{mark}  {}", check.what))?;
            }
            teller.tell(&format!("\nThe demo took {}.", seconds(facts.took)))?;
            self.point_further(facts, teller, store)?;
        }
        if broken > 0 { Err(DemoError::Unsound(broken)) } else { Ok(()) }
    }

    fn point_further(
        &self,
        facts: &Facts,
        teller: &Teller,
        store: &StoreUrl,
    ) -> Result<(), DemoError> {
        if !self.keep {
            return teller.tell("With --keep the file is not deleted, and you can inspect it.");
        }
        teller.tell("The file is not deleted. Inspect it:")?;
        let dead = facts.records.iter().find(|task| task.lifecycle.public().as_str() == "failed");
        if let Some(task) = dead {
            teller.tell(&format!("  windlass task why {} --store {store}", task.id))?;
        }
        teller.tell(&format!("  windlass dlq list --store {store}"))?;
        teller.tell(&format!("  windlass events --store {store}"))
    }
}

/// Collects the facts from the store after all workers have exited.
async fn gather(
    engine: &Engine,
    plan: &Plan,
    played: Played,
    effects: &Path,
    begun: Instant,
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
        requests: played.requests,
        twice: played.twice,
        killed: played.killed,
        stalled: played.stalled,
        history: played.history,
        records,
        effects: Effects::read(effects)?,
        took: begun.elapsed(),
    })
}
