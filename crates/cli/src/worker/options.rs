use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::worker::exec::Exec;
use crate::worker::list::List;

/// Run workers, and list the registered ones.
#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Exec(Box<Exec>),
    /// List the registered workers: what they claim, and when they were last seen.
    #[command(visible_alias = "ls")]
    List(List),
}

impl WorkerCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.what {
            What::Exec(exec) => exec.run().await,
            What::List(list) => list.run().await,
        }
    }
}
