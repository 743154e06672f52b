use clap::Args;
use serde_json::json;

use crate::error::CliError;
use crate::formats::Formats;
use crate::output::{say, say_json};
use crate::target::Target;

/// Make or complete the tables of a store.
#[derive(Debug, Args)]
#[command(
    after_help = "Engines do it by themselves when they start. Do it before them where their \
    role may not make tables, or to have it done when many of them start."
)]
pub(crate) struct Migrate {
    /// Do nothing; exit code 3 where there is something to do.
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
                None => say(&format!("{store}: tables are made, in format {to}.")),
            }
        } else if !is_behind {
            say(&format!("{store} has format {to}: there is nothing to do."));
        }
        match (is_behind && self.check, before.found) {
            (true, from) => Err(CliError::Behind { store: store.to_string(), from, to }),
            _ => Ok(()),
        }
    }
}
