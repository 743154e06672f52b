use std::time::Duration;

use clap::Args;
use windlass::{Engine, Kind, LaneName, SentMessage, TaskId};

use crate::error::CliError;
use crate::signal_args::{SignalArgs, say_sent};
use crate::target::Target;
use crate::workflow::start::{InputArg, input};

/// The options of fields with another name.
const OPTIONS: &[(&str, &str)] = &[
    ("id", "ID"),
    ("name", "NAME"),
    ("source", "--source"),
    ("ttl_ms", "--buffer-for in milliseconds"),
    ("kind", "--start"),
    ("lane", "--lane"),
    ("payload_bytes", "the payload in bytes"),
];

const EXAMPLES: &str = "Examples:
  windlass workflow signal order-42 approved --payload '{\"by\":\"ada\"}'
  windlass workflow signal order-42 remind --delay 1h
  windlass workflow signal order-43 paid --buffer-for 2h
  windlass workflow signal cart-7 item-added --payload '{\"sku\":1}' --start cart --input '{}'

A message that the workflow does not wait for stays in its mailbox until it does.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Signal {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// The name of the signal that the code of the workflow waits for.
    name: String,
    /// If the workflow does not exist yet, buffer the message for this long, until a workflow is
    /// started with this id; 1d without a value.
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        default_missing_value = "1d",
        value_parser = crate::duration::parse
    )]
    buffer_for: Option<Duration>,
    /// If the workflow does not exist, start one of this kind with this id, and deliver the message
    /// to it in the same commit (signal-with-start).
    #[arg(long, value_name = "KIND", conflicts_with = "buffer_for")]
    start: Option<Kind>,
    /// The input of the started workflow, as JSON; @FILE reads it from a file.
    #[arg(long, value_name = "JSON|@FILE", value_parser = input, requires = "start")]
    input: Option<InputArg>,
    /// The lane of the started workflow.
    #[arg(long, default_value = "default", requires = "start")]
    lane: LaneName,
    #[command(flatten)]
    signal: SignalArgs,
    #[command(flatten)]
    target: Target,
}

impl Signal {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let payload = self.signal.read()?;
        let input = self.input.as_ref().map(InputArg::read).transpose()?;
        let engine = self.target.open().await?;
        self.find(&engine).await?;
        let signal = engine.signal(self.id.clone(), &self.name);
        let signal = signal.tenant(self.target.tenant.clone());
        let mut signal = self.signal.on(signal, payload);
        if let Some(keep) = self.buffer_for {
            signal = signal.buffer_for(keep);
        }
        if let Some(kind) = &self.start {
            let workflow = engine.create(kind.clone()).lane(self.lane.clone()).workflow(None);
            let workflow = match input {
                Some(input) => workflow.raw_payload(input),
                None => workflow,
            };
            signal = signal.start_if_absent(workflow);
        }
        let rejected = |error| CliError::for_object("workflow", &self.id, error).named(OPTIONS);
        let sent = signal.await.map_err(rejected)?;
        say_sent(&sent, self.target.json, &sent_text(&sent));
        Ok(engine.shutdown().await?)
    }

    /// Rejects a task that is not a workflow, and a mistyped id.
    async fn find(&self, engine: &Engine) -> Result<(), CliError> {
        match self.target.workflow(engine, &self.id).await {
            Err(CliError::NotFound { .. }) if self.buffer_for.is_some() || self.start.is_some() => {
                Ok(())
            }
            found => found.map(drop),
        }
    }
}

fn sent_text(sent: &SentMessage) -> String {
    let SentMessage { task, seq, .. } = sent;
    if sent.buffered {
        return format!("There is no workflow {task} yet. Message {seq} waits for it.");
    }
    match (sent.duplicate, sent.resumed) {
        (true, _) => format!("Duplicate: sent before as message {seq} of workflow {task}."),
        (false, true) => format!("Workflow {task} runs a turn with message {seq}."),
        (false, false) => format!("Workflow {task} receives message {seq} in its next turn."),
    }
}
