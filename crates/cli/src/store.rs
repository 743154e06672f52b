use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

/// Maintain the store.
#[derive(Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Expire all cursors after restoring a backup, before anything opens the store: start a new
    /// incarnation of the log
    ///
    /// The restored log reuses the sequence numbers given after the backup, for other events.
    /// Readers with such a cursor then get `cursor_expired`, instead of missing events silently.
    ResetCursors(ResetCursors),
}

#[derive(Debug, Args)]
struct ResetCursors {
    #[command(flatten)]
    target: Target,
}

impl StoreCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.what {
            What::ResetCursors(reset) => reset.run().await,
        }
    }
}

impl ResetCursors {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        engine.shutdown().await?;
        self.target.store.renew_incarnation().await?;
        let engine = self.target.open().await?;
        let incarnation = engine.describe().await?.incarnation;
        engine.shutdown().await?;
        if self.target.json {
            say_json(&serde_json::json!({ "incarnation": incarnation }));
        } else {
            say(&format!("The log of {} has incarnation {incarnation}.", self.target.store));
        }
        Ok(())
    }
}
