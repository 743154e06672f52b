use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::workflow::cancel::Cancel;
use crate::workflow::check_history::CheckHistory;
use crate::workflow::delete::Delete;
use crate::workflow::history::History;
use crate::workflow::list::List;
use crate::workflow::prune::Prune;
use crate::workflow::show::Show;
use crate::workflow::signal::Signal;
use crate::workflow::start::Start;
use crate::workflow::tree::Tree;

#[derive(Debug, Args)]
pub(crate) struct WorkflowArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a workflow and print its id; a worker with its code runs it.
    Start(Start),
    /// List workflows by id; other tasks are skipped.
    #[command(visible_alias = "ls")]
    List(List),
    /// Show a workflow: its state, steps, status, values, and what it waits for.
    Show(Show),
    /// Show the inputs and commands of a workflow, turn by turn, with times and durations.
    History(History),
    /// Show a workflow with its open activities and its children, recursively.
    Tree(Tree),
    /// Send a signal to a workflow.
    Signal(Signal),
    /// Request cancellation: the code of the workflow may clean up; --force ends it at once.
    Cancel(Cancel),
    /// Delete a workflow, its history and its children before retention does; or many, by a filter.
    Delete(Delete),
    /// Delete earlier executions of a workflow.
    Prune(Prune),
    /// Check that a history is well formed and consistent; runs no code.
    CheckHistory(CheckHistory),
}

impl WorkflowArgs {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Start(start) => start.run().await,
            Verb::List(list) => list.run().await,
            Verb::Show(show) => show.run().await,
            Verb::History(history) => history.run().await,
            Verb::Tree(tree) => tree.run().await,
            Verb::Signal(signal) => signal.run().await,
            Verb::Cancel(cancel) => cancel.run().await,
            Verb::Delete(delete) => delete.run().await,
            Verb::Prune(prune) => prune.run().await,
            Verb::CheckHistory(check) => check.run().await,
        }
    }
}
