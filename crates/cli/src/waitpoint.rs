use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use windlass::{TaskId, Timestamp, Waitpoint, WaitpointId, WaitpointState};

use crate::duration;
use crate::error::CliError;
use crate::output::{say, say_json, say_table, time};
use crate::target::Target;

const OPTIONS: &[(&str, &str)] = &[("waitpoint", "ID"), ("ttl_ms", "--ttl")];

#[derive(Debug, Args)]
pub(crate) struct WaitpointCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a waitpoint of a task and print its token; the same command prints it again.
    Create(Create),
    /// List waitpoints with their tasks and states.
    #[command(visible_alias = "ls")]
    List(List),
}

#[derive(Debug, Args)]
struct Create {
    /// The task that receives the message.
    task: TaskId,
    /// The id of the waitpoint, of ASCII letters, digits and _ : -; used by no other task.
    id: WaitpointId,
    /// How long its token is valid.
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = duration::parse)]
    ttl: Duration,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct List {
    /// Only waitpoints of this task.
    #[arg(long, value_name = "ID")]
    task: Option<TaskId>,
    /// How many to show.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Continue after this id.
    #[arg(long, value_name = "ID")]
    after: Option<WaitpointId>,
    #[command(flatten)]
    target: Target,
}

impl WaitpointCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Create(create) => create.run().await,
            Verb::List(list) => list.run().await,
        }
    }
}

impl Create {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.key(&self.task);
        let created = engine.create_waitpoint(&task, self.id, self.ttl).await;
        let created = created
            .map_err(|error| CliError::for_object("task", &self.task, error).named(OPTIONS))?;
        if self.target.json {
            say_json(&json!({
                "id": created.id,
                "task": self.task,
                "token": created.token.expose_secret(),
                "expires_at": time(created.expires_at),
            }));
        } else {
            say(created.token.expose_secret());
        }
        Ok(engine.shutdown().await?)
    }
}

impl List {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let limit = self.limit as usize;
        let (tenant, task, after) = (&self.target.tenant, self.task.as_ref(), self.after.as_ref());
        let mut found = engine.waitpoints(tenant, task, after, limit).await?;
        let more = match found.last().filter(|_| found.len() == limit) {
            Some(last) => !engine.waitpoints(tenant, task, Some(&last.id), 1).await?.is_empty(),
            None => false,
        };
        found.truncate(limit);
        let now = duration::now();
        if self.target.json {
            found.iter().for_each(|waitpoint| say_json(&described(waitpoint)));
        } else if found.is_empty() {
            say("There is no waitpoint.");
        } else {
            let rows = found.iter().map(|waitpoint| row(waitpoint, now)).collect();
            say_table(["id", "task", "state", "signing key", "fingerprint", "expires"], rows);
        }
        if let (true, false, Some(last)) = (more, self.target.json, found.last()) {
            say(&format!("There are more: --after {}", last.id));
        }
        Ok(engine.shutdown().await?)
    }
}

fn message(waitpoint: &Waitpoint) -> Option<u64> {
    match waitpoint.state {
        WaitpointState::Completed { seq } => Some(seq),
        WaitpointState::Pending | WaitpointState::Active => None,
    }
}

/// Identifies a token by its fingerprint, without the token.
fn described(waitpoint: &Waitpoint) -> Value {
    json!({
        "id": waitpoint.id,
        "task": waitpoint.task,
        "state": waitpoint.state.as_str(),
        "message": message(waitpoint),
        "signing_key": waitpoint.key_id,
        "fingerprint": waitpoint.fingerprint.to_string(),
        "created_at": time(waitpoint.created_at),
        "expires_at": time(waitpoint.expires_at),
    })
}

fn row(waitpoint: &Waitpoint, now: Timestamp) -> [String; 6] {
    let state = match message(waitpoint) {
        Some(seq) => format!("completed by message {seq}"),
        None if waitpoint.expires_at <= now => "expired".to_owned(),
        None => waitpoint.state.as_str().to_owned(),
    };
    [
        waitpoint.id.to_string(),
        waitpoint.task.to_string(),
        state,
        waitpoint.key_id.clone(),
        waitpoint.fingerprint.to_string()[..8].to_owned(),
        duration::distance(waitpoint.expires_at, now),
    ]
}
