use std::io::{Read as _, stdin};

use clap::Args;
use windlass::{SentMessage, TaskId, Token};

use crate::error::CliError;
use crate::signal_args::{SignalArgs, say_sent};
use crate::target::Target;

/// The maximum length of a token.
const MOST_TOKEN: u64 = 4_096;

/// The options of fields with another name.
const OPTIONS: &[(&str, &str)] = &[
    ("id", "--task"),
    ("name", "NAME"),
    ("source", "--source"),
    ("payload_bytes", "the payload in bytes"),
];

const EXAMPLES: &str = "Examples:
  windlass signal approve --task order-17 --payload '{\"by\":\"ada\"}'
  windlass signal approve --token - --source ada < token.txt
  WINDLASS_TOKEN=wl1... windlass signal approve --idempotency-key answer-1
  windlass signal remind --task order-17 --delay 1h

A token on the command line can be seen by others on this machine: give it on standard input, or
in WINDLASS_TOKEN.";

/// Send a signal to a task: by its id, or through a waitpoint with its token.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    group = clap::ArgGroup::new("to").args(["task", "token"]).required(true)
)]
pub(crate) struct Signal {
    /// The name of the signal.
    name: String,
    /// The id of the task, as `task list` shows it.
    #[arg(long, value_name = "ID")]
    task: Option<TaskId>,
    /// The token of a waitpoint; - reads it from standard input.
    #[arg(long, env = "WINDLASS_TOKEN", hide_env_values = true, conflicts_with = "delay")]
    token: Option<String>,
    #[command(flatten)]
    signal: SignalArgs,
    #[command(flatten)]
    target: Target,
}

impl Signal {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        if self.token.as_deref() == Some("-") && self.signal.is_standard_input() {
            return Err(CliError::OneInput("--token", "--payload-file"));
        }
        let payload = self.signal.read()?;
        let token = self.token.as_deref().map(read_token).transpose()?;
        let engine = self.target.open().await?;
        let signal = match (&self.task, &token) {
            (Some(task), _) => engine.signal(task.clone(), &self.name),
            (None, Some(token)) => engine.complete_waitpoint(token, &self.name),
            (None, None) => unreachable!("clap requires one of the two"),
        };
        let signal = signal.tenant(self.target.tenant.clone());
        let signal = self.signal.on(signal, payload);
        let task = self.task.as_ref().map(TaskId::as_str).unwrap_or_default();
        let rejected = |error| CliError::for_object("task", task, error).named(OPTIONS);
        let sent = signal.await.map_err(rejected)?;
        say_sent(&sent, self.target.json, &sent_text(&sent));
        Ok(engine.shutdown().await?)
    }
}

fn sent_text(sent: &SentMessage) -> String {
    let SentMessage { task, seq, .. } = sent;
    match (sent.duplicate, sent.resumed) {
        (true, _) => format!("Duplicate: sent before as message {seq} of task {task}."),
        (false, true) => format!("Task {task} resumes with message {seq}."),
        (false, false) => format!("Task {task} has message {seq} in its mailbox."),
    }
}

fn read_token(text: &str) -> Result<Token, CliError> {
    if text != "-" {
        return Ok(Token::new(text.trim()));
    }
    let mut text = String::new();
    let read = stdin().lock().take(MOST_TOKEN).read_to_string(&mut text);
    read.map_err(|error| CliError::System { what: "the token on standard input", error })?;
    Ok(Token::new(text.trim()))
}
