use clap::Args;
use serde_json::{Value, json};
use windlass::workflow::{TurnRecord, WorkflowProperty};
use windlass::{Engine, Error, Lifecycle, Payload, Task, TaskId, Timestamp};

use crate::duration::{distance, moment, now};
use crate::error::CliError;
use crate::output::{counted, one_line, printable, say_json, say_pairs, time};
use crate::target::Target;
use crate::task::{payload_json, readable};
use crate::workflow::command_text::awaited;
use crate::workflow::list::workflow_json;
use crate::workflow::open::{Open, open, unread};

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    #[command(flatten)]
    target: Target,
}

/// The data of a workflow that is stored outside its record.
struct WorkflowData {
    input: Option<Payload>,
    result: Option<Payload>,
    properties: Vec<WorkflowProperty>,
    rows: Vec<TurnRecord>,
    /// Why its history cannot be read, if so: what it waits for is then unknown.
    damage: Option<Error>,
    /// The names of the unread messages carried over from the previous execution.
    unread: Vec<String>,
}

impl WorkflowData {
    async fn of(engine: &Engine, task: &Task) -> Result<Self, CliError> {
        let input = match task.input_key() {
            Some(key) => engine.payload(&key).await?,
            None => None,
        };
        let result = match task.result_key() {
            Some(key) => engine.payload(&key).await?,
            None => None,
        };
        let properties = engine.properties(&task.task_key()).await?;
        let (rows, damage) = match engine.history(task, 0).await {
            Ok(rows) => (rows, None),
            Err(error @ (Error::HistoryMissing { .. } | Error::HistoryUnreadable { .. })) => {
                (Vec::new(), Some(error))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { input, result, properties, rows, damage, unread: unread(engine, task).await? })
    }

    fn status(&self) -> Option<&str> {
        let status = self.properties.iter().find(|note| note.name == WorkflowProperty::STATUS);
        status.map(|status| status.text.as_str())
    }

    fn values(&self) -> impl Iterator<Item = (&str, Value)> {
        let values = self.properties.iter().filter(|note| note.name != WorkflowProperty::STATUS);
        values.map(|note| {
            let value = serde_json::from_str(&note.text);
            (note.name.as_str(), value.unwrap_or_else(|_| json!(note.text)))
        })
    }

    /// What it waits for; empty once it has ended.
    fn open(&self, task: &Task) -> Vec<Open<'_>> {
        match task.lifecycle.ended_at() {
            Some(_) => Vec::new(),
            None => open(&self.rows, &self.unread),
        }
    }
}

impl Show {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.workflow(&engine, &self.id).await?;
        let data = WorkflowData::of(&engine, &task).await?;
        if self.target.json {
            say_json(&whole_json(&task, &data));
        } else {
            say_pairs(&pairs(&task, &data, now()));
        }
        Ok(engine.shutdown().await?)
    }
}

fn whole_json(task: &Task, data: &WorkflowData) -> Value {
    let mut fields = workflow_json(task);
    fields["status"] = json!(data.status());
    fields["values"] = data.values().map(|(name, value)| (name.to_owned(), value)).collect();
    let waits = data.open(task).into_iter().map(|open| {
        let (what, since) = (awaited(open.command), time(open.since));
        json!({ "step": open.step, "what": what, "since": since })
    });
    fields["waiting_for"] = waits.collect();
    if let Some(damage) = &data.damage {
        fields["history_error"] = json!(damage.to_string());
    }
    fields["input"] = data.input.as_ref().map_or(Value::Null, payload_json);
    fields["result"] = data.result.as_ref().map_or(Value::Null, payload_json);
    fields
}

fn pairs(task: &Task, data: &WorkflowData, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut pairs = vec![
        ("workflow", task.id.to_string()),
        ("kind", task.kind.to_string()),
        ("lane", task.lane.to_string()),
        ("state", state_text(task, now)),
    ];
    add_errors(&mut pairs, task, now);
    if let Some(state) = task.workflow.as_deref() {
        pairs.extend(state.version.clone().map(|version| ("version", version)));
        let (turns, steps) = (u64::from(state.turns), state.next_step - state.first_step);
        let done = format!("{}, {}", counted(turns, "turn"), counted(steps, "step"));
        pairs.push(("execution", format!("{}: {done}", task.execution)));
        let sticky = state.sticky.as_ref().filter(|_| task.lifecycle.ended_at().is_none());
        let worker = sticky.map(|sticky| sticky.worker.to_string());
        pairs.extend(worker.map(|worker| ("sticky worker", worker)));
    }
    pairs.extend(data.status().map(|status| ("status", printable(status))));
    let values = data.values().map(|(name, value)| printable(&format!("{name} = {value}")));
    let values = values.collect::<Vec<_>>().join("\n");
    pairs.extend((!values.is_empty()).then_some(("values", values)));
    let waits = data.open(task).into_iter().map(|open| {
        format!(
            "{}, step {}, since {}",
            awaited(open.command),
            open.step,
            distance(open.since, now)
        )
    });
    let waits = waits.collect::<Vec<_>>().join("\n");
    pairs.extend((!waits.is_empty()).then_some(("waiting for", waits)));
    pairs.extend(
        data.damage.as_ref().map(|damage| ("history error", printable(&damage.to_string()))),
    );
    let labels = task.labels.iter().map(|(name, value)| format!("{name}={}", one_line(value)));
    let labels = labels.collect::<Vec<_>>().join("\n");
    pairs.extend((!labels.is_empty()).then_some(("labels", labels)));
    pairs.extend(task.parent.as_ref().map(|parent| ("parent", parent.to_string())));
    pairs.push(("created", moment(task.created_at, now)));
    if task.execution > 0 {
        pairs.push(("continued", moment(task.started_at, now)));
    }
    pairs.extend(data.input.as_ref().map(|input| ("input", readable(input))));
    pairs.extend(data.result.as_ref().map(|result| ("result", readable(result))));
    pairs
}

/// The state, and since when.
fn state_text(task: &Task, now: Timestamp) -> String {
    let state = task.lifecycle.public();
    match &task.lifecycle {
        Lifecycle::Suspended(suspension) => {
            format!("{state} since {}", moment(suspension.since, now))
        }
        Lifecycle::Active(lease) => format!("{state}, a turn on {}", lease.worker),
        Lifecycle::Delayed { until, .. } => format!("{state} until {}", moment(*until, now)),
        lifecycle => match lifecycle.ended_at() {
            Some(at) => format!("{state} {}", moment(at, now)),
            None => state.to_string(),
        },
    }
}

/// Why it failed, why it is cancelled, or why it cannot continue.
fn add_errors(pairs: &mut Vec<(&'static str, String)>, task: &Task, now: Timestamp) {
    match &task.lifecycle {
        Lifecycle::Failed { class, reason, .. } => {
            pairs.push(("failure", format!("{}: {}", class.as_str(), printable(reason))));
        }
        Lifecycle::Cancelled { reason, .. } => pairs.push(("reason", printable(reason))),
        lifecycle if lifecycle.ended_at().is_none() => {
            let reason = task.workflow.as_ref().and_then(|state| state.cancel_reason.as_ref());
            pairs.extend(reason.map(|reason| ("cancel reason", printable(reason))));
            // A worker that cannot continue the workflow reports why as progress.
            let last_error = task.progress.as_ref().map(|progress| {
                format!("{} ({})", printable(&progress.message), distance(progress.at, now))
            });
            pairs.extend(last_error.map(|last_error| ("trouble", last_error)));
        }
        _ => {}
    }
}
