use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::worker::exec::Exec;
use crate::worker::list::List;

/// Run workers, and look at those that run.
#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Exec(Box<Exec>),
    /// List the registered workers: what they take, and when they were last heard of.
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
