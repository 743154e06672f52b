use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use windlass::{
    Backoff, Config, Engine, Kind, LaneName, Payload, RetryPolicy, StoreUrl, TaskBuilder, TaskId,
};

use crate::duration::{self, BadDuration};
use crate::error::CliError;
use crate::output::{say, say_aside, say_json};
use crate::payload::PayloadArgs;
use crate::target::Target;

/// The options of fields that other commands take as arguments.
const OPTIONS: &[(&str, &str)] = &[
    ("id", "--id"),
    ("lane", "--lane"),
    ("parent", "--parent"),
    ("priority", "--priority"),
    ("concurrency_key", "--concurrency-key"),
    ("session", "--session"),
    ("capability", "--requires"),
    ("capabilities", "the number of --requires"),
    ("capabilities_bytes", "the length of all --requires in bytes"),
];

const EXAMPLES: &str = "Examples:
  windlass task create email --payload '{\"to\":\"ada@example.com\"}'
  windlass task create report --lane slow --attempts 5 --backoff 10s --attempt-timeout 2m
  windlass task create sync --delay 5m --deadline 1h --label customer=42
  windlass task create import --payload-file data.csv --content-type text/csv
  echo '[1,2,3]' | windlass task create sum --payload-file - --content-type application/json

A missing database is created.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Create {
    /// The kind of the task, which selects its handler.
    kind: Kind,
    /// The task id; creating the same task again with it is a duplicate [default: a new id]
    #[arg(long)]
    id: Option<TaskId>,
    /// An idempotency key: the same request again within a day returns the first task.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The parent task, which may wait for this one.
    #[arg(long, value_name = "ID")]
    parent: Option<TaskId>,

    #[command(flatten)]
    payload: PayloadArgs,

    /// The lane it waits in.
    #[arg(long, default_value = "default", help_heading = "When and where it runs")]
    lane: LaneName,
    /// Higher goes first within the lane.
    #[arg(
        long,
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "When and where it runs"
    )]
    priority: i32,
    /// The delay before it may start, as in 5m.
    #[arg(long, value_parser = duration::parse, help_heading = "When and where it runs")]
    delay: Option<Duration>,
    /// Expire the task after this time, whatever its state.
    #[arg(long, value_parser = duration::parse, help_heading = "When and where it runs")]
    deadline: Option<Duration>,
    /// A capability that the worker must have; may be given several times.
    #[arg(long, value_name = "CAPABILITY", help_heading = "When and where it runs")]
    requires: Vec<String>,
    /// The tag by which workers select tasks.
    #[arg(long, help_heading = "When and where it runs")]
    tag: Option<String>,
    /// The concurrency key: its tasks run one at a time, or as windlass quota sets.
    #[arg(long, value_name = "KEY", help_heading = "When and where it runs")]
    concurrency_key: Option<String>,
    /// The session: its tasks run on one worker, one at a time, or as windlass quota sets.
    #[arg(long, conflicts_with = "concurrency_key", help_heading = "When and where it runs")]
    session: Option<String>,

    /// The maximum number of attempts [default: a reported failure is final]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Retries")]
    attempts: Option<u32>,
    /// The delay before a retry: 10s fixed, 1s..1h doubling up to the cap, or +10s..1h growing by a
    /// step up to the cap [default: 1s..1h]
    #[arg(
        long,
        value_name = "DELAY",
        value_parser = backoff,
        requires = "attempts",
        help_heading = "Retries"
    )]
    backoff: Option<Backoff>,
    /// The timeout of one attempt.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse,
        help_heading = "Retries"
    )]
    attempt_timeout: Option<Duration>,

    /// A label to find the task by; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    #[command(flatten)]
    target: Target,
}

impl Create {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        self.check_labels()?;
        let payload = self.payload.read()?;
        let is_there = self.target.store.exists();
        if !is_there {
            self.rehearse(payload.clone()).await?;
        }
        let engine = self.target.open_or_make().await?;
        if !is_there && !self.target.json {
            let store = &self.target.store;
            say_aside(&format!("windlass: {store} did not exist and has been created"));
        }
        let creation = self.describe(engine.create(self.kind.clone()), payload);
        let created = creation.await.map_err(|error| CliError::from(error).named(OPTIONS))?;
        if self.target.json {
            say_json(&json!({ "id": created.id(), "duplicate": created.is_duplicate() }));
        } else if created.is_duplicate() {
            say(&format!("{} (duplicate: it was created before)", created.id()));
        } else {
            say(created.id().as_str());
        }
        Ok(engine.shutdown().await?)
    }

    /// Creates the task in memory first: a rejected task leaves no database behind.
    async fn rehearse(&self, payload: Option<Payload>) -> Result<(), CliError> {
        let config = Config { background: false, ..Config::default() };
        let engine = Engine::open_with(&StoreUrl::Memory, config).await?;
        let creation = self.describe(engine.create(self.kind.clone()), payload);
        creation.await.map_err(|error| CliError::from(error).named(OPTIONS))?;
        Ok(engine.shutdown().await?)
    }

    fn check_labels(&self) -> Result<(), CliError> {
        let mut names = BTreeSet::new();
        match self.label.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => Err(CliError::LabelTwice(name.clone())),
            None => Ok(()),
        }
    }

    fn describe<'e>(&self, creation: TaskBuilder<'e>, payload: Option<Payload>) -> TaskBuilder<'e> {
        let mut creation = creation
            .tenant(self.target.tenant.clone())
            .lane(self.lane.clone())
            .priority(self.priority);
        if let Some(id) = &self.id {
            creation = creation.id(id.clone());
        }
        if let Some(key) = &self.idempotency_key {
            creation = creation.idempotency_key(key.as_str());
        }
        if let Some(parent) = &self.parent {
            creation = creation.parent(parent.clone());
        }
        if let Some(payload) = payload {
            creation = creation.raw_payload(payload);
        }
        if let Some(delay) = self.delay {
            creation = creation.after(delay);
        }
        if let Some(deadline) = self.deadline {
            creation = creation.deadline(deadline);
        }
        if let Some(attempts) = self.attempts {
            let unsaid = RetryPolicy::exponential(attempts);
            let backoff = self.backoff.unwrap_or(unsaid.backoff);
            creation = creation.retry(RetryPolicy { backoff, ..unsaid });
        }
        if let Some(timeout) = self.attempt_timeout {
            creation = creation.attempt_timeout(timeout);
        }
        if let Some(tag) = &self.tag {
            creation = creation.tag(tag);
        }
        if let Some(key) = &self.concurrency_key {
            creation = creation.concurrency_key(key);
        }
        if let Some(session) = &self.session {
            creation = creation.session(session);
        }
        let creation = self.requires.iter().fold(creation, TaskBuilder::requires);
        self.label.iter().fold(creation, |creation, (name, value)| creation.label(name, value))
    }
}

/// Parses a label.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a label is NAME=VALUE, as in customer=42".to_owned()),
    }
}

fn backoff(text: &str) -> Result<Backoff, String> {
    let ms = |text| {
        let pause = duration::parse(text).map_err(|bad| bad.to_string())?;
        u64::try_from(pause.as_millis()).map_err(|_| BadDuration.to_string())
    };
    let Some((base, cap)) = text.split_once("..") else {
        return Ok(Backoff::Fixed { ms: ms(text)? });
    };
    let (is_linear, base) = match base.strip_prefix('+') {
        Some(step) => (true, step),
        None => (false, base),
    };
    let (base_ms, cap_ms) = (ms(base)?, ms(cap)?);
    if base_ms > cap_ms {
        return Err(format!("the delay must grow: {cap}..{base}"));
    }
    if is_linear {
        return Ok(Backoff::Linear { step_ms: base_ms, cap_ms });
    }
    Ok(Backoff::Exponential { base_ms, cap_ms, jitter_percent: 20 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs() {
        let doubling =
            |base_ms, cap_ms| Some(Backoff::Exponential { base_ms, cap_ms, jitter_percent: 20 });
        for (text, expected) in [
            ("10s", Some(Backoff::Fixed { ms: 10_000 })),
            ("1s..1h", doubling(1_000, 3_600_000)),
            ("1s..1s", doubling(1_000, 1_000)),
            ("+10s..1m", Some(Backoff::Linear { step_ms: 10_000, cap_ms: 60_000 })),
            ("+1h..1s", None),
            ("+10s", None),
            ("1h..1s", None),
            ("1s..", None),
            ("..1h", None),
            ("1s...1h", None),
            ("soon", None),
        ] {
            assert_eq!(backoff(text).ok(), expected, "{text}");
        }
    }
}
