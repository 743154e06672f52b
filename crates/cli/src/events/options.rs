use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde_json::Value;
use windlass::{Cursor, Engine, Error, Family, Kind, LaneName, Logged, Subscription, TaskId};

use crate::error::CliError;
use crate::events::cursor::{parse, written};
use crate::events::entry::{entry_json, line};
use crate::events::place::Place;
use crate::log::LogView;
use crate::output::{reader_left, say, say_json};
use crate::target::Target;
use crate::task::label;

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
  windlass events --kind email --family completion --label customer=42
  windlass events --as audit --follow --json   on from where `--as audit` was last time

What says --lane, --kind or --family twice is shown what is of either; what says --label twice,
what has both. The last line, and the field `cursor` of every JSON object, say where --after goes
on.";

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
    /// Everything behind the place that is kept under this name, which moves with what is shown:
    /// from the oldest entry the first time, and from where it was after that.
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// How many at most, before what --follow adds [default: the last 50; with --after, all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Only those of this task.
    #[arg(long, value_name = "ID", help_heading = "Which")]
    task: Option<TaskId>,
    /// Only those in this lane.
    #[arg(long = "lane", value_name = "LANE", help_heading = "Which")]
    lanes: Vec<LaneName>,
    /// Only those of tasks of this kind.
    #[arg(long = "kind", value_name = "KIND", help_heading = "Which")]
    kinds: Vec<Kind>,
    /// Only those of this family.
    #[arg(long = "family", value_name = "FAMILY", value_parser = family(), help_heading = "Which")]
    families: Vec<Family>,
    /// Only those of tasks that had this label at the time.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label, help_heading = "Which")]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    target: Target,
}

fn family() -> impl clap::builder::TypedValueParser<Value = Family> {
    PossibleValuesParser::new(FAMILIES).map(|name| {
        serde_json::from_value(Value::String(name)).expect("these are names of families")
    })
}

/// Which entries to show.
#[derive(Debug)]
struct Filter {
    task: Option<TaskId>,
    rest: windlass::Filter,
}

impl Filter {
    fn takes(&self, entry: &Logged) -> bool {
        self.task.as_ref().is_none_or(|task| entry.task.as_ref() == Some(task))
            && self.rest.takes(entry)
    }
}

impl Events {
    fn filter(&self) -> Filter {
        let rest = windlass::Filter {
            families: self.families.iter().copied().collect(),
            tenant: Some(self.target.tenant.clone()),
            lanes: self.lanes.iter().cloned().collect(),
            kinds: self.kinds.iter().cloned().collect(),
            labels: self.labels.iter().cloned().collect(),
        };
        Filter { task: self.task.clone(), rest }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (filter, json) = (self.filter(), self.target.json);
        let place = Place::new(&engine, &self.target.tenant, self.name.as_deref());
        let start = match &self.after {
            Some(cursor) => Some(cursor.clone()),
            None => place.start().await.map_err(named)?,
        };
        let reached = match start {
            Some(cursor) => {
                let shown = forward(&engine, &cursor, &filter, self.limit, json).await;
                shown.map_err(|error| CliError::expired(Some(&cursor), error))?
            }
            None => backward(&engine, &filter, self.limit.unwrap_or(LAST), json).await?,
        };
        place.move_to(&reached).await.map_err(named)?;
        let reached = if self.follow {
            let log = engine.subscribe(Some(reached)).await?;
            follow(log, &filter, &place, json).await?
        } else {
            reached
        };
        if !json {
            say(&format!("cursor {}", written(&reached)));
        }
        Ok(engine.shutdown().await?)
    }
}

fn named(error: Error) -> CliError {
    CliError::from(error).named(&[("name", "--as")])
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
    let start = log.start_of_tail(limit, |entry| filter.takes(entry)).await?;
    let show_taken = |entry: &Logged| {
        if filter.takes(entry) {
            show(entry, log.incarnation(), json);
        }
    };
    log.forward(start, show_taken).await?;
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
async fn follow(
    mut log: Subscription,
    filter: &Filter,
    place: &Place<'_>,
    json: bool,
) -> Result<Cursor, CliError> {
    // One listener for the whole time: a Ctrl-C while something is printed is not lost.
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    let mut left = std::pin::pin!(reader_left());
    loop {
        let before = log.cursor().clone();
        tokio::select! {
            // It listens from its first look on, which is before the first entry is shown.
            biased;
            pressed = &mut stop => {
                pressed.map_err(CliError::Signal)?;
                return Ok(before);
            }
            () = &mut left => return Ok(before),
            entries = log.next() => {
                let entries = entries.map_err(|error| CliError::expired(Some(&before), error))?;
                for entry in entries.iter().filter(|entry| filter.takes(entry)) {
                    show(entry, &before.incarnation, json);
                }
                place.move_to(log.cursor()).await?;
            }
        }
    }
}
