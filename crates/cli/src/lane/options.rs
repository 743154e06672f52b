use clap::{Args, Subcommand};
use windlass::LaneState;

use crate::error::CliError;
use crate::lane::change::{Limit, Named};
use crate::lane::list::List;

#[derive(Debug, Args)]
pub(crate) struct LaneCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List lanes with their state and their numbers of ready and running tasks.
    #[command(visible_alias = "ls")]
    List(List),
    /// Lease no tasks; they are still accepted.
    Pause(Named),
    /// Accept tasks and lease them again.
    Resume(Named),
    /// Accept no more tasks, lease the existing ones.
    Drain(Named),
    /// Neither accept nor lease tasks.
    Disable(Named),
    /// Set how many tasks of a lane may run at once, across all workers.
    Limit(Limit),
}

impl LaneCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::List(list) => list.run().await,
            Verb::Pause(lane) => lane.set(LaneState::Paused).await,
            Verb::Resume(lane) => lane.set(LaneState::Active).await,
            Verb::Drain(lane) => lane.set(LaneState::Draining).await,
            Verb::Disable(lane) => lane.set(LaneState::Disabled).await,
            Verb::Limit(limit) => limit.run().await,
        }
    }
}
