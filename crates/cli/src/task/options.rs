use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::task::cancel::Cancel;
use crate::task::create::Create;
use crate::task::grant::Grant;
use crate::task::list::List;
use crate::task::messages::Messages;
use crate::task::priority::Priority;
use crate::task::replay::Replay;
use crate::task::resume::Resume;
use crate::task::revoke::Revoke;
use crate::task::show::Show;
use crate::task::wait::Wait;
use crate::task::why::Why;

#[derive(Debug, Args)]
pub(crate) struct TaskCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a task and print its id.
    Create(Box<Create>),
    /// List tasks by id; generated ids are in order of creation.
    #[command(visible_alias = "ls")]
    List(List),
    /// Show all details of a task and its events.
    Show(Show),
    /// Explain why a task does not make progress, and what helps.
    Why(Why),
    /// List the pending messages of a task: name, sender and time.
    Messages(Messages),
    /// Cancel a task in any state; its lease holder cannot settle it then.
    Cancel(Cancel),
    /// Replay an ended task: start its next execution, with its original payload.
    Replay(Replay),
    /// Resume a suspended task, whatever it waits for.
    Resume(Resume),
    /// Change the priority of a task in its lane: higher goes first.
    Priority(Priority),
    /// Grant a waiting task to one worker for a while.
    Grant(Grant),
    /// Revoke a task from its lease holder or grantee; it waits in its lane again.
    Revoke(Revoke),
    /// Wait until a task has ended; exit code 0 if it completed, 3 if not.
    Wait(Wait),
}

impl TaskCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Create(create) => create.run().await,
            Verb::List(list) => list.run().await,
            Verb::Show(show) => show.run().await,
            Verb::Why(why) => why.run().await,
            Verb::Messages(messages) => messages.run().await,
            Verb::Cancel(cancel) => cancel.run().await,
            Verb::Replay(replay) => replay.run().await,
            Verb::Resume(resume) => resume.run().await,
            Verb::Priority(priority) => priority.run().await,
            Verb::Grant(grant) => grant.run().await,
            Verb::Revoke(revoke) => revoke.run().await,
            Verb::Wait(wait) => wait.run().await,
        }
    }
}
