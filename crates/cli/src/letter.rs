//! A message on its way: what every command that sends one says of it, and what it answers.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use windlass::{Payload, Posted, Posting};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::payload::PayloadArgs;

#[derive(Debug, Args)]
pub(crate) struct Letter {
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
}

impl Letter {
    pub(crate) fn is_standard_input(&self) -> bool {
        self.payload.is_standard_input()
    }

    /// What it carries.
    pub(crate) fn read(&self) -> Result<Option<Payload>, CliError> {
        self.payload.read()
    }

    /// All that is said of a message here.
    pub(crate) fn on<'e>(&self, posting: Posting<'e>, payload: Option<Payload>) -> Posting<'e> {
        let mut posting = posting.source(&self.source);
        if let Some(key) = &self.key {
            posting = posting.idempotency_key(key.as_str());
        }
        if let Some(after) = self.after {
            posting = posting.after(after);
        }
        match payload {
            Some(payload) => posting.raw_payload(payload),
            None => posting,
        }
    }
}

/// Says what became of a message: for programs all of it, for people in these words.
pub(crate) fn say_posted(posted: &Posted, as_json: bool, told: &str) {
    if !as_json {
        return say(told);
    }
    say_json(&json!({
        "task": posted.task,
        "seq": posted.seq,
        "duplicate": posted.duplicate,
        "resumed": posted.resumed,
        "kept": posted.kept,
    }));
}
