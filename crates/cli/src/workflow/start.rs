use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use windlass::{Config, Engine, Kind, LaneName, Payload, StoreUrl, TaskBuilder, TaskId};

use crate::error::CliError;
use crate::output::{say, say_aside, say_json};
use crate::payload::{json_text, read_bytes};
use crate::target::Target;
use crate::task::label;

/// The options of fields with another name.
const OPTIONS: &[(&str, &str)] = &[
    ("id", "--id"),
    ("kind", "KIND"),
    ("lane", "--lane"),
    ("version", "--version"),
    ("payload_bytes", "--input in bytes"),
];

const JSON: &str = "application/json";

const EXAMPLES: &str = "Examples:
  windlass workflow start order --id order-42 --input '{\"card\":\"4242\"}'
  windlass workflow start report --input @month.json --lane slow --label customer=42
  jq .order event.json | windlass workflow start order --input @-

Starting it again with the same id returns the same workflow as a duplicate; with another input
it is a conflict. Whitespace between the parts of the input is ignored, the order of its fields
is not. A missing database is created.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Start {
    /// The name of the workflow: that of its function, unless its worker registered another.
    kind: Kind,
    /// The workflow id [default: a new id]
    #[arg(long)]
    id: Option<TaskId>,
    /// The input, as JSON; @FILE reads it from a file, @- from standard input.
    #[arg(long, value_name = "JSON|@FILE", value_parser = input)]
    input: Option<InputArg>,
    /// The lane of its turns, and of its activities by default.
    #[arg(long, default_value = "default")]
    lane: LaneName,
    /// The version of its code to pin it to.
    #[arg(long)]
    version: Option<String>,
    /// A label to find the workflow by; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Debug)]
pub(super) enum InputArg {
    Json(String),
    File(PathBuf),
}

pub(super) fn input(text: &str) -> Result<InputArg, String> {
    match text.strip_prefix('@') {
        Some(path) => Ok(InputArg::File(path.into())),
        None => {
            let hint = |error| format!("{error}; use @FILE to read a file");
            json_text(text).map(InputArg::Json).map_err(hint)
        }
    }
}

impl InputArg {
    pub(super) fn read(&self) -> Result<Payload, CliError> {
        let path = match self {
            InputArg::Json(text) => return Ok(Payload::new(JSON, closed_up(text.as_bytes()))),
            InputArg::File(path) => path,
        };
        let bytes = read_bytes(path, "--input")?;
        let parsed = serde_json::from_slice::<serde_json::Value>(&bytes);
        let rejected = |error| CliError::PayloadFile { path: path.clone(), error };
        parsed.map_err(|error| rejected(error.into()))?;
        Ok(Payload::new(JSON, closed_up(&bytes)))
    }
}

/// Removes whitespace between JSON tokens. Nothing else changes.
fn closed_up(json: &[u8]) -> Vec<u8> {
    let (mut in_text, mut is_escaped) = (false, false);
    let mut closed = json.to_vec();
    closed.retain(|byte| {
        let is_retained = in_text || !byte.is_ascii_whitespace();
        if *byte == b'"' && !is_escaped {
            in_text = !in_text;
        }
        is_escaped = in_text && *byte == b'\\' && !is_escaped;
        is_retained
    });
    closed
}

impl Start {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        self.check_labels()?;
        let input = self.input.as_ref().map(InputArg::read).transpose()?;
        let is_there = self.target.store.exists();
        if !is_there {
            self.rehearse(input.clone()).await?;
        }
        let engine = self.target.open_or_make().await?;
        if !is_there && !self.target.json {
            let store = &self.target.store;
            say_aside(&format!("windlass: {store} did not exist and has been created"));
        }
        let creation = self.describe(engine.create(self.kind.clone()), input);
        let started = creation.await.map_err(|error| CliError::from(error).named(OPTIONS))?;
        if self.target.json {
            say_json(&json!({ "id": started.id(), "duplicate": started.is_duplicate() }));
        } else if started.is_duplicate() {
            say(&format!("{} (duplicate: it was started before)", started.id()));
        } else {
            say(started.id().as_str());
        }
        Ok(engine.shutdown().await?)
    }

    /// Creates the workflow in memory first: a rejected one leaves no database behind.
    async fn rehearse(&self, input: Option<Payload>) -> Result<(), CliError> {
        let config = Config { background: false, ..Config::default() };
        let engine = Engine::open_with(&StoreUrl::Memory, config).await?;
        let creation = self.describe(engine.create(self.kind.clone()), input);
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

    fn describe<'e>(&self, creation: TaskBuilder<'e>, input: Option<Payload>) -> TaskBuilder<'e> {
        let mut creation = creation
            .tenant(self.target.tenant.clone())
            .lane(self.lane.clone())
            .workflow(self.version.clone());
        if let Some(id) = &self.id {
            creation = creation.id(id.clone());
        }
        if let Some(input) = input {
            creation = creation.raw_payload(input);
        }
        self.label.iter().fold(creation, |creation, (name, value)| creation.label(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_is_retained_within_strings_only() {
        let rows = [
            ("7", "7"),
            (" { \"a\" : 1,\n\t\"b\": [ 2, 3.0 ]\r\n}\n", r#"{"a":1,"b":[2,3.0]}"#),
            (r#"{ "a b": " c  d " }"#, r#"{"a b":" c  d "}"#),
            (r#"[ "\" x", "\\" , " y" ]"#, r#"["\" x","\\"," y"]"#),
        ];
        for (text, expected) in rows {
            let closed = String::from_utf8(closed_up(text.as_bytes())).unwrap();
            assert_eq!(closed, expected);
            let read = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(read(&closed), read(text));
        }
    }
}
