use clap::Args;
use serde_json::{Value, json};
use windlass::{Backoff, ChildCounts, Engine, Lifecycle, Payload, Policy, Task, TaskId, Timestamp};

use crate::duration::{brief, distance, moment, now};
use crate::error::CliError;
use crate::events::{details, entry_json};
use crate::log::{LogEvents, LogView};
use crate::output::{counted, one_line, say, say_json, say_pairs};
use crate::target::Target;
use crate::task::json::{policy_json, task_json};
use crate::task::note::{attempts, child_counts};
use crate::task::payload::{payload_json, readable};

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    #[command(flatten)]
    target: Target,
}

/// The data of a task that is stored outside its record.
struct TaskData {
    payload: Option<Payload>,
    result: Option<Payload>,
    children: Option<ChildCounts>,
    events: LogEvents,
    incarnation: String,
}

impl TaskData {
    async fn of(engine: &Engine, task: &Task) -> Result<Self, CliError> {
        let payload = match task.input_key() {
            Some(key) => engine.payload(&key).await?,
            None => None,
        };
        let result = match task.result_key() {
            Some(key) => engine.payload(&key).await?,
            None => None,
        };
        let children = if task.has_children {
            Some(engine.child_counts(&task.task_key()).await?)
        } else {
            None
        };
        let log = LogView::open(engine).await?;
        let events = log.of_task(task).await?;
        Ok(Self { payload, result, children, events, incarnation: log.incarnation().to_owned() })
    }
}

impl Show {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.task(&engine, &self.id).await?;
        let data = TaskData::of(&engine, &task).await?;
        if self.target.json {
            say_json(&whole_json(&task, &data));
        } else {
            print(&task, &data, now());
        }
        Ok(engine.shutdown().await?)
    }
}

fn whole_json(task: &Task, data: &TaskData) -> Value {
    let mut fields = task_json(task);
    fields["policy"] = policy_json(&task.policy);
    fields["payload"] = data.payload.as_ref().map_or(Value::Null, payload_json);
    fields["result"] = data.result.as_ref().map_or(Value::Null, payload_json);
    fields["children"] = json!(data.children);
    let events = data.events.entries.iter().map(|entry| entry_json(entry, &data.incarnation));
    fields["events"] = events.collect();
    fields["events_truncated"] = data.events.truncated.into();
    fields
}

fn print(task: &Task, data: &TaskData, now: Timestamp) {
    let mut pairs = vec![
        ("task", task.id.to_string()),
        ("kind", task.kind.to_string()),
        ("lane", task.lane.to_string()),
        ("state", state_text(task, now)),
    ];
    if task.tenant.as_str() != "default" {
        pairs.insert(1, ("tenant", task.tenant.to_string()));
    }
    add_state_fields(&mut pairs, task, now);
    pairs.push(("priority", task.priority.to_string()));
    pairs.push(("attempts", tries(task)));
    pairs.push(("policy", policy(&task.policy)));
    if !task.route.as_str().is_empty() {
        pairs.push(("requires", requirements(task)));
    }
    if !task.labels.is_empty() {
        let labels = task.labels.iter().map(|(name, value)| format!("{name}={}", one_line(value)));
        pairs.push(("labels", labels.collect::<Vec<_>>().join("\n")));
    }
    if let Some(parent) = &task.parent {
        pairs.push(("parent", parent.to_string()));
    }
    if let Some(counts) = &data.children {
        pairs.push(("children", child_counts(counts)));
    }
    pairs.push(("created", moment(task.created_at, now)));
    if task.execution > 0 {
        let started = moment(task.started_at, now);
        pairs.push(("replayed", format!("{}, {started}", counted_times(task.execution))));
    }
    if let Some(deadline) = task.deadline {
        pairs.push(("deadline", moment(deadline, now)));
    }
    if let Some(payload) = &data.payload {
        pairs.push(("payload", readable(payload)));
    }
    if let Some(result) = &data.result {
        pairs.push(("result", readable(result)));
    }
    say_pairs(&pairs);
    timeline(task, &data.events, now);
}

/// The state, and since when or until when.
fn state_text(task: &Task, now: Timestamp) -> String {
    let state = task.lifecycle.public();
    match &task.lifecycle {
        Lifecycle::Waiting(readiness)
        | Lifecycle::Blocked(readiness)
        | Lifecycle::Granted { readiness, .. } => {
            format!("{state} since {}", moment(readiness.ready_at, now))
        }
        Lifecycle::Suspended(suspension) => {
            format!("{state} since {}", moment(suspension.since, now))
        }
        Lifecycle::WaitingChildren { since, .. } => {
            format!("{state} since {}", moment(*since, now))
        }
        Lifecycle::Delayed { until, .. } => format!("{state} until {}", moment(*until, now)),
        Lifecycle::Active(lease) => match &lease.attempt {
            Some(run) => format!("{state} since {}", moment(run.began_at, now)),
            None => format!("{state}, its attempt has not begun"),
        },
        Lifecycle::Completed { at }
        | Lifecycle::Failed { at, .. }
        | Lifecycle::Cancelled { at, .. }
        | Lifecycle::Expired { at } => format!("{state} {}", moment(*at, now)),
    }
}

/// The fields of the current state only.
fn add_state_fields(pairs: &mut Vec<(&str, String)>, task: &Task, now: Timestamp) {
    match &task.lifecycle {
        Lifecycle::Active(lease) => {
            let ran_out = if lease.expires_at <= now { ", expired" } else { "" };
            let until = moment(lease.expires_at, now);
            pairs.push(("lease", format!("{} until {until}{ran_out}", lease.worker)));
            if let Some(at) = lease.attempt.as_ref().and_then(|attempt| attempt.timeout_at) {
                pairs.push(("times out", moment(at, now)));
            }
        }
        Lifecycle::Delayed { after: Some(class), .. } => {
            pairs.push(("retry", format!("after a {} failure", class.as_str())));
        }
        Lifecycle::Failed { class, reason, .. } => {
            pairs.push(("failure", format!("{}: {}", class.as_str(), one_line(reason))));
        }
        Lifecycle::Cancelled { reason, .. } => pairs.push(("reason", one_line(reason))),
        _ => {}
    }
    if let Some(progress) = &task.progress {
        let message = one_line(&progress.message);
        let at = distance(progress.at, now);
        pairs.push(("progress", format!("{}% {message} ({at})", progress.percent)));
    }
    if task.lifecycle.ended_at().is_some() {
        let at = task.lifecycle.ended_at().map(|at| at.plus_ms(task.policy.retention_ms));
        pairs.extend(at.map(|at| ("retained until", moment(at, now))));
    }
}

fn tries(task: &Task) -> String {
    let mut text = attempts(task);
    if task.lost_leases > 0 {
        text.push_str(&format!(", {}", counted(task.lost_leases.into(), "lost lease")));
    }
    text
}

fn counted_times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn policy(policy: &Policy) -> String {
    let mut parts = vec![match &policy.retry {
        None => "a reported failure is final".to_owned(),
        Some(retry) => {
            let backoff = match retry.backoff {
                Backoff::Fixed { ms } => format!("{} apart", brief(ms)),
                Backoff::Linear { step_ms, cap_ms } => {
                    format!("growing by {} to {}", brief(step_ms), brief(cap_ms))
                }
                Backoff::Exponential { base_ms, cap_ms, .. } => {
                    format!("doubling from {} to {}", brief(base_ms), brief(cap_ms))
                }
            };
            let classes: Vec<&str> = retry.retry_on.iter().map(|class| class.as_str()).collect();
            format!("{} attempts {backoff}, after {}", retry.max_attempts, classes.join(", "))
        }
    }];
    if let Some(ms) = policy.attempt_timeout_ms {
        parts.push(format!("an attempt may take {}", brief(ms)));
    }
    parts.push(format!("retained for {} after its end", brief(policy.retention_ms)));
    parts.join("; ")
}

fn requirements(task: &Task) -> String {
    let mut parts: Vec<String> = task.route.capabilities().map(String::from).collect();
    parts.extend(task.route.tag().map(|tag| format!("tag {tag}")));
    parts.join(", ")
}

fn timeline(task: &Task, events: &LogEvents, now: Timestamp) {
    say("");
    for entry in &events.entries {
        let line = format!(
            "{}  {:>12}  {:<16}  {}",
            entry.at,
            distance(entry.at, now),
            entry.name,
            details(entry)
        );
        say(line.trim_end());
    }
    if events.truncated {
        let id = &task.id;
        say(&format!(
            "Older events were trimmed from the log, or are too far back to be searched here; \
             windlass events --task {id} searches all of it."
        ));
    }
}
