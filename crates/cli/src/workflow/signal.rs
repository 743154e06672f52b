use std::time::Duration;

use clap::Args;
use serde_json::json;
use windlass::{Posted, TaskId};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::payload::PayloadArgs;
use crate::target::Target;

/// The options that give fields of another name.
const OPTIONS: &[(&str, &str)] = &[
    ("id", "ID"),
    ("name", "NAME"),
    ("source", "--source"),
    ("idempotency_key", "--key"),
    ("payload in bytes", "what it carries in bytes"),
];

const EXAMPLES: &str = "Examples:
  windlass workflow signal order-42 approved --payload '{\"by\":\"ada\"}'
  windlass workflow signal order-42 remind --after 1h

A message that nobody waits for is kept until the workflow asks for it.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Signal {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// What the message is called: the name that the workflow's code waits for.
    name: String,
    /// Who says so.
    #[arg(long, default_value = "command line")]
    source: String,
    /// Send it once per key and day: the same again gets the number of the first.
    #[arg(long)]
    key: Option<String>,
    /// Let it be seen only after so long, as in 5m.
    #[arg(long, value_parser = crate::duration::parse)]
    after: Option<Duration>,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    target: Target,
}

impl Signal {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let payload = self.payload.read()?;
        let engine = self.target.open().await?;
        self.target.workflow(&engine, &self.id).await?;
        let posting = engine.post(self.id.clone(), &self.name);
        let mut posting = posting.tenant(self.target.tenant.clone()).source(&self.source);
        if let Some(key) = &self.key {
            posting = posting.idempotency_key(key.as_str());
        }
        if let Some(after) = self.after {
            posting = posting.after(after);
        }
        if let Some(payload) = payload {
            posting = posting.raw_payload(payload);
        }
        let refused = |error| CliError::about("workflow", &self.id, error).named(OPTIONS);
        let posted = posting.await.map_err(refused)?;
        if self.target.json {
            say_json(&json!({
                "task": posted.task,
                "seq": posted.seq,
                "duplicate": posted.duplicate,
                "resumed": posted.resumed,
            }));
        } else {
            say(&told(&posted));
        }
        Ok(engine.shutdown().await?)
    }
}

fn told(posted: &Posted) -> String {
    let Posted { task, seq, .. } = posted;
    match (posted.duplicate, posted.resumed) {
        (true, _) => format!("It was sent before, as message {seq} of workflow {task}."),
        (false, true) => format!("Workflow {task} takes another turn with message {seq}."),
        (false, false) => format!("Workflow {task} is told of message {seq} at its next turn."),
    }
}
