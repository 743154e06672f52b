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
    /// Start a new incarnation of the log, after restoring a backup and before anything opens it
    ///
    /// The restored log reuses the sequence numbers given after the backup, for other events.
    /// Readers with such a cursor then get `cursor_expired`, instead of missing events silently.
    Renew(Renew),
}

#[derive(Debug, Args)]
struct Renew {
    #[command(flatten)]
    target: Target,
}

impl StoreCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.what {
            What::Renew(renew) => renew.run().await,
        }
    }
}

impl Renew {
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
