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
    /// List lanes: their state, what is ready, what runs.
    #[command(visible_alias = "ls")]
    List(List),
    /// Hand nothing out for a while; tasks are still taken.
    Pause(Named),
    /// Take tasks and hand them out again.
    Resume(Named),
    /// Take no more tasks, hand out those there are.
    Drain(Named),
    /// Neither take tasks nor hand any out.
    Disable(Named),
    /// Set how many tasks of a lane may run at once, over all workers.
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
