use clap::Args;
use clap::builder::PossibleValuesParser;
use windlass::{Cursor, Engine, Error, LaneName, Logged, Subscription, TaskId, Tenant};
use windlass_core::Family;

use crate::error::CliError;
use crate::events::cursor::{parse, written};
use crate::events::entry::{entry_json, line};
use crate::log::LogView;
use crate::output::{reader_left, say, say_json};
use crate::target::Target;

const FAMILIES: [&str; 5] = [
    Family::Task.as_str(),
    Family::Lease.as_str(),
    Family::Completion.as_str(),
    Family::Lane.as_str(),
    Family::Signal.as_str(),
];

/// What is shown without --limit and without --after.
const LAST: usize = 50;

const EXAMPLES: &str = "Examples:
  windlass events                           the last 50 changes
  windlass events --follow --lane email     and those to come, until Ctrl-C
  windlass events --task 0199... --limit 1000
  windlass events --after 0199...:1234      all that came behind a cursor
  windlass events --follow --json | jq -c 'select(.change == \"failed\")'

The last line, and the field `cursor` of every JSON object, say where to go on with --after.";

/// Show what happened, in the order in which it was committed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
    /// Go on showing what happens, whichever process does it, until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
    /// Everything behind this cursor, instead of the last changes.
    #[arg(long, value_name = "CURSOR", value_parser = parse)]
    after: Option<Cursor>,
    /// How many at most, before what --follow adds [default: the last 50; with --after, all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Only those of this task.
    #[arg(long, value_name = "ID", help_heading = "Which")]
    task: Option<TaskId>,
    /// Only those in this lane.
    #[arg(long, help_heading = "Which")]
    lane: Option<LaneName>,
    /// Only those of this family.
    #[arg(long, value_parser = PossibleValuesParser::new(FAMILIES), help_heading = "Which")]
    family: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Which entries to show.
#[derive(Debug)]
struct Filter {
    tenant: Tenant,
    task: Option<TaskId>,
    lane: Option<LaneName>,
    family: Option<String>,
}

impl Filter {
    fn takes(&self, entry: &Logged) -> bool {
        entry.tenant == self.tenant
            && self.task.as_ref().is_none_or(|task| entry.task.as_ref() == Some(task))
            && self.lane.as_ref().is_none_or(|lane| entry.lane == *lane)
            && self.family.as_ref().is_none_or(|family| entry.family == *family)
    }
}

impl Events {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let filter = Filter {
            tenant: self.target.tenant,
            task: self.task,
            lane: self.lane,
            family: self.family,
        };
        let json = self.target.json;
        let reached = match &self.after {
            Some(cursor) => {
                let shown = forward(&engine, cursor, &filter, self.limit, json).await;
                shown.map_err(|error| CliError::expired(Some(cursor), error))?
            }
            None => backward(&engine, &filter, self.limit.unwrap_or(LAST), json).await?,
        };
        let reached = if self.follow {
            let log = engine.subscribe(Some(reached)).await?;
            follow(log, &filter, json).await?
        } else {
            reached
        };
        if !json {
            say(&format!("cursor {}", written(&reached)));
        }
        Ok(engine.shutdown().await?)
    }
}

fn show(entry: &Logged, incarnation: &str, json: bool) {
    if json {
        say_json(&entry_json(entry, incarnation));
    } else {
        say(&line(entry));
    }
}

/// The last entries; says where the log ended.
async fn backward(
    engine: &Engine,
    filter: &Filter,
    limit: usize,
    json: bool,
) -> Result<Cursor, Error> {
    let log = LogView::open(engine).await?;
    for entry in log.tail(limit, |entry| filter.takes(entry)).await? {
        show(&entry, log.incarnation(), json);
    }
    Ok(log.cursor(log.last()))
}

/// What lies behind a cursor; says how far it went.
async fn forward(
    engine: &Engine,
    cursor: &Cursor,
    filter: &Filter,
    limit: Option<usize>,
    json: bool,
) -> Result<Cursor, Error> {
    let mut log = engine.subscribe(Some(cursor.clone())).await?;
    let mut left = limit.unwrap_or(usize::MAX);
    loop {
        let mut reached = log.cursor().clone();
        let entries = log.read().await?;
        if entries.is_empty() {
            return Ok(reached);
        }
        for entry in entries {
            if filter.takes(&entry) {
                if left == 0 {
                    return Ok(reached);
                }
                left -= 1;
                show(&entry, &reached.incarnation, json);
            }
            reached.seq = entry.seq;
        }
    }
}

/// What is added to the log, until Ctrl-C or until nobody reads it.
async fn follow(mut log: Subscription, filter: &Filter, json: bool) -> Result<Cursor, CliError> {
    // One listener for the whole time: a Ctrl-C while something is printed is not lost.
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    let mut left = std::pin::pin!(reader_left());
    loop {
        let before = log.cursor().clone();
        tokio::select! {
            () = &mut left => return Ok(before),
            pressed = &mut stop => {
                pressed.map_err(CliError::Signal)?;
                return Ok(before);
            }
            entries = log.next() => {
                let entries = entries.map_err(|error| CliError::expired(Some(&before), error))?;
                for entry in entries.iter().filter(|entry| filter.takes(entry)) {
                    show(entry, &before.incarnation, json);
                }
            }
        }
    }
}
