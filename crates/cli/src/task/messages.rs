use clap::Args;
use serde_json::{Value, json};
use windlass::{ReceivedMessage, Rejection, TaskId, Timestamp};

use crate::duration;
use crate::error::CliError;
use crate::output::{printable, say, say_json, say_table, time};
use crate::target::Target;
use crate::task::payload::{brief, payload_json};

#[derive(Debug, Args)]
pub(crate) struct Messages {
    /// The id of the task, as `task list` shows it.
    id: TaskId,
    /// How many to show.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Continue after the message of this number.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    target: Target,
}

impl Messages {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let key = self.target.key(&self.id);
        if engine.task(&key).await?.is_none() {
            return Err(CliError::for_object("task", &self.id, Rejection::TaskNotFound.into()));
        }
        let limit = self.limit as usize;
        // Reads one more than is shown, to know whether more exist.
        let mut found = engine.messages(&key, self.after, limit + 1).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let now = duration::now();
        if self.target.json {
            found.iter().for_each(|received| say_json(&described(received)));
        } else if found.is_empty() {
            say("There is no message.");
        } else {
            let rows = found.iter().map(|received| row(received, now)).collect();
            say_table(["seq", "name", "source", "sent", "state", "payload"], rows);
        }
        if let (true, false, Some(last)) = (more, self.target.json, found.last()) {
            say(&format!("There are more: --after {}", last.message.seq));
        }
        Ok(engine.shutdown().await?)
    }
}

fn described(received: &ReceivedMessage) -> Value {
    let message = &received.message;
    json!({
        "seq": message.seq,
        "name": message.name,
        "source": message.source,
        "waitpoint": message.waitpoint,
        "sent_at": time(message.sent_at),
        "visible_at": time(message.visible_at),
        "resumed_attempt": message.resumed_attempt_at.is_some(),
        "payload": received.payload.as_ref().map(payload_json),
    })
}

fn row(received: &ReceivedMessage, now: Timestamp) -> [String; 6] {
    let message = &received.message;
    let state = if message.visible_at > now {
        format!("visible {}", duration::distance(message.visible_at, now))
    } else if message.resumed_attempt_at.is_some() {
        "resumed the attempt".to_owned()
    } else {
        "pending".to_owned()
    };
    [
        message.seq.to_string(),
        printable(&message.name),
        printable(&message.source),
        duration::distance(message.sent_at, now),
        state,
        received.payload.as_ref().map(brief).unwrap_or_default(),
    ]
}
