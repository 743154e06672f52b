//! The options and the output of the commands that send a message.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use windlass::{Payload, SentMessage, SignalBuilder};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::payload::PayloadArgs;

#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// The sender of the message.
    #[arg(long, default_value = "command line")]
    source: String,
    /// An idempotency key: the same message again within a day gets the number of the first.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The delay before the message becomes visible, as in 5m.
    #[arg(long, value_parser = crate::duration::parse)]
    delay: Option<Duration>,
    #[command(flatten)]
    payload: PayloadArgs,
}

impl SignalArgs {
    pub(crate) fn is_standard_input(&self) -> bool {
        self.payload.is_standard_input()
    }

    /// Reads the payload.
    pub(crate) fn read(&self) -> Result<Option<Payload>, CliError> {
        self.payload.read()
    }

    /// Applies the options to a message.
    pub(crate) fn on<'e>(
        &self,
        signal: SignalBuilder<'e>,
        payload: Option<Payload>,
    ) -> SignalBuilder<'e> {
        let mut signal = signal.source(&self.source);
        if let Some(key) = &self.idempotency_key {
            signal = signal.idempotency_key(key.as_str());
        }
        if let Some(delay) = self.delay {
            signal = signal.after(delay);
        }
        match payload {
            Some(payload) => signal.raw_payload(payload),
            None => signal,
        }
    }
}

/// Prints the result of sending: JSON for programs, `text` for people.
pub(crate) fn say_sent(sent: &SentMessage, as_json: bool, text: &str) {
    if !as_json {
        return say(text);
    }
    say_json(&json!({
        "task": sent.task,
        "seq": sent.seq,
        "duplicate": sent.duplicate,
        "resumed": sent.resumed,
        "buffered": sent.buffered,
    }));
}
