use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::worker::exec::Exec;

/// Run workers.
#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Exec(Box<Exec>),
}

impl WorkerCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.what {
            What::Exec(exec) => exec.run().await,
        }
    }
}
