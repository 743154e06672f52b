use clap::{Args, Subcommand};
use windlass::{Kind, LaneName, PublicState, TaskFilter};

use crate::dlq::list::List;
use crate::dlq::replay::Replay;
use crate::error::CliError;

#[derive(Debug, Args)]
pub(crate) struct DlqCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List failed tasks with their reasons.
    #[command(visible_alias = "ls")]
    List(List),
    /// Run failed tasks again, with the payload they were created with.
    Replay(Replay),
}

/// A filter on failed tasks.
#[derive(Clone, Debug, Args)]
pub(super) struct Which {
    /// Only tasks of this lane.
    #[arg(long, help_heading = "Which")]
    lane: Option<LaneName>,
    /// Only tasks of this kind.
    #[arg(long, help_heading = "Which")]
    kind: Option<Kind>,
}

impl Which {
    pub(super) fn filter(&self) -> TaskFilter {
        let state = Some(PublicState::Failed);
        let (lane, kind) = (self.lane.clone(), self.kind.clone());
        TaskFilter { state, lane, kind, ..TaskFilter::default() }
    }

    pub(super) fn is_everything(&self) -> bool {
        self.lane.is_none() && self.kind.is_none()
    }
}

impl DlqCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::List(list) => list.run().await,
            Verb::Replay(replay) => replay.run().await,
        }
    }
}
