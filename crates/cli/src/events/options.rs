use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde_json::Value;
use windlass::{
    Cursor, Engine, Error, EventCategory, Kind, LaneName, LogEvent, Subscription, TaskId,
};

use crate::error::CliError;
use crate::events::cursor::{parse, written};
use crate::events::entry::{entry_json, line};
use crate::events::subscription_cursor::SubscriptionCursor;
use crate::log::LogView;
use crate::output::{reader_closed, say, say_json};
use crate::target::Target;
use crate::task::label;

const CATEGORIES: [&str; 5] = [
    EventCategory::Task.as_str(),
    EventCategory::Lease.as_str(),
    EventCategory::Completion.as_str(),
    EventCategory::Lane.as_str(),
    EventCategory::Signal.as_str(),
];

/// How many events are shown without --limit and --after.
const LAST: usize = 50;

const EXAMPLES: &str = "Examples:
  windlass events                           the last 50 changes
  windlass events --follow --lane email     and follow it, until Ctrl-C
  windlass events --task 0199... --limit 1000
  windlass events --after 0199...:1234      all changes after a cursor
  windlass events --follow --json | jq -c 'select(.event == \"failed\")'
  windlass events --kind email --category completion --label customer=42
  windlass events --subscription audit --follow --json

With --lane, --kind or --category given several times, events that match any are shown. With
several --label, those that match all are shown. The last line, and the field `cursor` of every
JSON object, is the cursor for --after.";

/// Show the log, in commit order.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
    /// Keep showing new events, made by any process, until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
    /// All events after this cursor, instead of the last ones.
    #[arg(long, value_name = "CURSOR", value_parser = parse)]
    after: Option<Cursor>,
    /// All events after the cursor of this durable subscription, which advances with what is
    /// shown. The first use starts at the oldest event.
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// The maximum number, not counting --follow [default: the last 50; with --after, all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Only events of this task.
    #[arg(long, value_name = "ID", help_heading = "Which")]
    task: Option<TaskId>,
    /// Only events of this lane.
    #[arg(long = "lane", value_name = "LANE", help_heading = "Which")]
    lanes: Vec<LaneName>,
    /// Only events of tasks of this kind.
    #[arg(long = "kind", value_name = "KIND", help_heading = "Which")]
    kinds: Vec<Kind>,
    /// Only events of this category.
    #[arg(long = "category", value_name = "CATEGORY", help_heading = "Which")]
    #[arg(value_parser = category())]
    categories: Vec<EventCategory>,
    /// Only events of tasks that had this label at the time.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label, help_heading = "Which")]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    target: Target,
}

fn category() -> impl clap::builder::TypedValueParser<Value = EventCategory> {
    PossibleValuesParser::new(CATEGORIES).map(|name| {
        serde_json::from_value(Value::String(name)).expect("the possible values are category names")
    })
}

/// Which events to show.
#[derive(Debug)]
struct Filter {
    task: Option<TaskId>,
    rest: windlass::EventFilter,
}

impl Filter {
    fn matches(&self, entry: &LogEvent) -> bool {
        self.task.as_ref().is_none_or(|task| entry.task.as_ref() == Some(task))
            && self.rest.matches(entry)
    }
}

impl Events {
    fn filter(&self) -> Filter {
        let rest = windlass::EventFilter {
            categories: self.categories.iter().copied().collect(),
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
        let stored_cursor =
            SubscriptionCursor::new(&engine, &self.target.tenant, self.subscription.as_deref());
        let start = match &self.after {
            Some(cursor) => Some(cursor.clone()),
            None => stored_cursor.start().await.map_err(named)?,
        };
        let reached = match start {
            Some(cursor) => {
                let shown = forward(&engine, &cursor, &filter, self.limit, json).await;
                shown.map_err(|error| CliError::expired(Some(&cursor), error))?
            }
            None => backward(&engine, &filter, self.limit.unwrap_or(LAST), json).await?,
        };
        stored_cursor.move_to(&reached).await.map_err(named)?;
        let reached = if self.follow {
            let log = engine.subscribe(Some(reached)).await?;
            follow(log, &filter, &stored_cursor, json).await?
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
    CliError::from(error).named(&[("name", "--subscription")])
}

fn show(entry: &LogEvent, incarnation: &str, json: bool) {
    if json {
        say_json(&entry_json(entry, incarnation));
    } else {
        say(&line(entry));
    }
}

/// Shows the last events and returns the end of the log.
async fn backward(
    engine: &Engine,
    filter: &Filter,
    limit: usize,
    json: bool,
) -> Result<Cursor, Error> {
    let log = LogView::open(engine).await?;
    let start = log.start_of_tail(limit, |entry| filter.matches(entry)).await?;
    let show_matching = |entry: &LogEvent| {
        if filter.matches(entry) {
            show(entry, log.incarnation(), json);
        }
    };
    log.forward(start, show_matching).await?;
    Ok(log.cursor(log.last()))
}

/// Shows the events after a cursor and returns the last cursor.
async fn forward(
    engine: &Engine,
    cursor: &Cursor,
    filter: &Filter,
    limit: Option<usize>,
    json: bool,
) -> Result<Cursor, Error> {
    let mut log = engine.subscribe(Some(cursor.clone())).await?;
    let mut remaining = limit.unwrap_or(usize::MAX);
    loop {
        let mut reached = log.cursor().clone();
        let entries = log.read().await?;
        if entries.is_empty() {
            return Ok(reached);
        }
        for entry in entries {
            if filter.matches(&entry) {
                if remaining == 0 {
                    return Ok(reached);
                }
                remaining -= 1;
                show(&entry, &reached.incarnation, json);
            }
            reached.seq = entry.seq;
        }
    }
}

/// Shows new events, until Ctrl-C or until the reader of stdout is closed.
async fn follow(
    mut log: Subscription,
    filter: &Filter,
    stored_cursor: &SubscriptionCursor<'_>,
    json: bool,
) -> Result<Cursor, CliError> {
    // One listener for the whole loop: a Ctrl-C while an event is printed is not lost.
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    let mut closed = std::pin::pin!(reader_closed());
    loop {
        let before = log.cursor().clone();
        tokio::select! {
            // The first poll registers the signal handler, before the first event is shown.
            biased;
            pressed = &mut stop => {
                pressed.map_err(CliError::Signal)?;
                return Ok(before);
            }
            () = &mut closed => return Ok(before),
            entries = log.next() => {
                let entries = entries.map_err(|error| CliError::expired(Some(&before), error))?;
                for entry in entries.iter().filter(|entry| filter.matches(entry)) {
                    show(entry, &before.incarnation, json);
                }
                stored_cursor.move_to(log.cursor()).await?;
            }
        }
    }
}
