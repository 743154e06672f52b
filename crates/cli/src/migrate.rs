use clap::Args;
use serde_json::json;

use crate::error::CliError;
use crate::formats::Formats;
use crate::output::{say, say_json};
use crate::target::Target;

/// Create or upgrade the tables of a store.
#[derive(Debug, Args)]
#[command(
    after_help = "Engines migrate automatically when they start. Run it before them if their \
    role may not create tables, or if many of them start at once."
)]
pub(crate) struct Migrate {
    /// Change nothing; exit code 3 if a migration is needed.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    target: Target,
}

impl Migrate {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let store = &self.target.store;
        let before = Formats::of(store).await?;
        let is_behind = before.is_behind();
        if is_behind && !self.check {
            store.open().await?.close().await?;
        }
        let to = before.found.unwrap_or(0).max(before.ours);
        let done = is_behind && !self.check;
        if self.target.json {
            let store = store.to_string();
            say_json(&json!({ "store": store, "from": before.found, "to": to, "done": done }));
        } else if done {
            match before.found {
                Some(from) => say(&format!("{store}: from format {from} to {to}.")),
                None => say(&format!("{store}: created tables in format {to}.")),
            }
        } else if !is_behind {
            say(&format!("{store} has format {to}: nothing to do."));
        }
        match (is_behind && self.check, before.found) {
            (true, from) => Err(CliError::Behind { store: store.to_string(), from, to }),
            _ => Ok(()),
        }
    }
}
