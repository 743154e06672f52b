//! A log event for people and for programs.

use serde_json::{Map, Value, json};
use windlass::{AfterTurn, Change, LeaseLoss, LogEvent, ResumeCause, TaskId, Timestamp};

use crate::duration::brief;
use crate::output::{one_line, time, with_times};
use crate::quota::{limits, noun};

pub(super) fn line(entry: &LogEvent) -> String {
    let subject = match (&entry.task, &entry.kind) {
        (Some(id), Some(kind)) => format!("{id} ({kind} in {})", entry.lane),
        (Some(id), None) => format!("{id} (in {})", entry.lane),
        (None, _) if entry.lane.as_str().is_empty() => format!("tenant {}", entry.tenant),
        (None, _) => format!("lane {}", entry.lane),
    };
    let (at, category, name) = (entry.at, &entry.category, &entry.name);
    let line = format!("{:>6}  {at}  {category:<10}  {name:<18}  {subject}", entry.seq);
    let details = details(entry);
    if details.is_empty() { line } else { format!("{line}  {details}") }
}

/// The details of a change, beyond its name.
pub(crate) fn details(entry: &LogEvent) -> String {
    let Some(change) = entry.change() else { return one_line(&entry.body) };
    let later = |at: Timestamp| format!("{at} ({} later)", brief(entry.at.ms_until(at)));
    match change {
        Change::Claimed { worker, attempt: Some(attempt), .. } => {
            format!("by {worker}, attempt {attempt}")
        }
        Change::Claimed { worker, attempt: None, .. } => format!("by {worker}"),
        Change::Begun { attempt, .. } => format!("attempt {attempt}"),
        Change::Renewed { expires_at, .. } => format!("until {}", later(expires_at)),
        Change::Progressed { percent, message, .. } => {
            format!("{percent}% {}", one_line(&message)).trim_end().to_owned()
        }
        Change::RetryScheduled { class, reason, at } => {
            format!("{}: {}; next attempt at {}", class.as_str(), one_line(&reason), later(at))
        }
        Change::Failed { class, reason } => format!("{}: {}", class.as_str(), one_line(&reason)),
        Change::Snoozed { until } => format!("until {}", later(until)),
        Change::Cancelled { reason } => one_line(&reason),
        Change::LeaseLost { lost_leases, cause, .. } => match cause {
            LeaseLoss::Expired => format!("lost lease {lost_leases}"),
            LeaseLoss::WorkerDead => format!("lost lease {lost_leases}: its worker died"),
            LeaseLoss::NotHeld => format!("lost lease {lost_leases}: its worker does not hold it"),
        },
        Change::PriorityChanged { priority } => format!("to {priority}"),
        Change::Replayed { execution } => format!("execution {execution}"),
        Change::ContinuedAsNew { execution } => format!("execution {execution}"),
        Change::LaneStateChanged { state } => format!("to {}", state.as_str()),
        Change::LaneLimited { limit: Some(limit) } => format!("to {limit} at once"),
        Change::LaneLimited { limit: None } => "no limit".to_owned(),
        Change::SessionGranted { worker } => format!("for {worker}"),
        Change::GrantReleased { worker } => format!("by {worker}"),
        Change::QuotaSet { scope, limit, rate } => {
            let (kind, name) = (noun(scope.kind()), one_line(scope.name()));
            format!("{kind} {name}: {}", limits(limit, rate))
        }
        Change::Resumed { cause, messages, by } => resumed(cause, &messages, by.as_deref()),
        Change::WaitingChildren { open, .. } => format!("{open} open"),
        Change::Granted { worker, until } => format!("to {worker} until {}", later(until)),
        Change::GrantExpired { worker } => format!("to {worker}"),
        Change::Revoked { worker, reason, .. } => {
            format!("from {worker}: {}", one_line(&reason)).trim_end_matches(": ").to_owned()
        }
        Change::Signalled { seq, name, source, .. } => {
            format!("{seq}: {} from {}", one_line(&name), one_line(&source))
        }
        Change::WaitpointCreated { id } => id.to_string(),
        Change::EffectClaimed { provider, name } | Change::EffectSettled { provider, name } => {
            format!("{provider} {name}")
        }
        Change::StatusChanged { revision } => format!("revision {revision}"),
        Change::Suspended { reason, .. } => format!("for {}", reason.as_str().replace('_', " ")),
        Change::TurnCommitted { turn, next, activities, .. } => {
            turn_committed(turn, next, &activities)
        }
        Change::CancelRequested { reason } => one_line(&reason),
        Change::Escalated
        | Change::Unblocked
        | Change::BlockedAgain
        | Change::Created
        | Change::Completed { .. }
        | Change::Released { .. }
        | Change::Promoted
        | Change::Expired
        | Change::Deleted => String::new(),
    }
}

/// Names the first activities only: a turn may create more than fit a line.
fn turn_committed(turn: u32, next: AfterTurn, activities: &[TaskId]) -> String {
    const NAMED: usize = 3;
    let next = match next {
        AfterTurn::KeepsLease => "keeps the lease",
        AfterTurn::Waits => "waits",
        AfterTurn::ContinuesAsNew => "continues as new",
        AfterTurn::Ends => "ends",
    };
    let line = format!("turn {turn}, {next}");
    if activities.is_empty() {
        return line;
    }
    let named: Vec<&str> = activities.iter().take(NAMED).map(TaskId::as_str).collect();
    let more = match activities.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{line}, creates {}{more}", named.join(", "))
}

fn resumed(cause: ResumeCause, messages: &[u64], by: Option<&str>) -> String {
    let cause = match cause {
        ResumeCause::Signals => "by signals",
        ResumeCause::Timeout => "by its timeout",
        ResumeCause::Operator => "by an operator",
        ResumeCause::Children => "by its last child",
    };
    let by = by.map_or_else(String::new, |by| format!(", {}", one_line(by)));
    let numbers: Vec<String> = messages.iter().map(u64::to_string).collect();
    let messages =
        if numbers.is_empty() { String::new() } else { format!(": {}", numbers.join(", ")) };
    format!("{cause}{by}{messages}")
}

/// The log event with the cursor after it.
pub(crate) fn entry_json(entry: &LogEvent, incarnation: &str) -> Value {
    json!({
        "seq": entry.seq,
        "cursor": format!("{incarnation}:{}", entry.seq),
        "at": time(entry.at),
        "tenant": entry.tenant,
        "lane": entry.lane,
        "task": entry.task,
        "kind": entry.kind,
        "category": entry.category,
        "event": entry.name,
        "details": body(&entry.body),
    })
}

/// The fields of a change, also of one unknown to this version.
fn body(text: &str) -> Value {
    let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    fields.remove("event");
    Value::Object(with_times(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, body: &str) -> LogEvent {
        LogEvent {
            seq: 7,
            at: Timestamp::from_millis(1_000),
            tenant: "default".into(),
            lane: "mail".into(),
            task: Some("t".into()),
            kind: Some("send".into()),
            category: "task".into(),
            name: name.into(),
            body: body.into(),
        }
    }

    #[test]
    fn changes() {
        for (name, body, expected) in [
            ("created", r#"{"event":"created"}"#, ""),
            ("claimed", r#"{"event":"claimed","epoch":1,"worker":"w"}"#, "by w"),
            (
                "snoozed",
                r#"{"event":"snoozed","until":61000000}"#,
                "until 1970-01-01T00:01:01.000Z (1m later)",
            ),
            ("failed", r#"{"event":"failed","class":"crash","reason":"a\nb"}"#, "crash: a b"),
            ("blessed", r#"{"event":"blessed","by":3}"#, r#"{"event":"blessed","by":3}"#),
        ] {
            assert_eq!(details(&entry(name, body)), expected, "{name}");
        }
    }

    #[test]
    fn timestamps_are_written_out() {
        let json = entry_json(&entry("snoozed", r#"{"event":"snoozed","until":0}"#), "i");
        assert_eq!(json["details"], json!({ "until": "1970-01-01T00:00:00.000Z" }));
        assert_eq!(json["cursor"], "i:7");
        assert_eq!(entry_json(&entry("x", "no json"), "i")["details"], json!({}));
    }
}
