use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

/// Look after the store itself.
#[derive(Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// After a backup was restored, and before anything opens it: start a new life of the log
    ///
    /// The numbers that the log gave after the backup are given again, to other entries. Readers
    /// that remember one of them are told `cursor_expired` from then on, instead of missing
    /// entries in silence.
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
            say(&format!("The log of {} is now {incarnation}.", self.target.store));
        }
        Ok(())
    }
}
