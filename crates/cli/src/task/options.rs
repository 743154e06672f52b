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
    /// Queue a task and print its id.
    Create(Box<Create>),
    /// List tasks by id; fresh ids are in the order of creation.
    #[command(visible_alias = "ls")]
    List(List),
    /// Everything there is to know about a task, with what happened to it.
    Show(Show),
    /// Say in a sentence or two why a task is not further than it is, and what helps.
    Why(Why),
    /// List the messages of a task that are not taken: what was sent, by whom, and when.
    Messages(Messages),
    /// Cancel a task, wherever it stands; its holder's writes are refused from then on.
    Cancel(Cancel),
    /// Start an ended task over, with the payload it was created with.
    Replay(Replay),
    /// Let a suspended task go on, whatever it waits for.
    Resume(Resume),
    /// Move a task forward or back in its lane: higher goes first.
    Priority(Priority),
    /// Keep a waiting task for one worker for a while.
    Grant(Grant),
    /// Take a task away from whoever holds it or has it granted; it waits in its lane again.
    Revoke(Revoke),
    /// Wait until a task has ended; exit code 0 if it was completed, 3 if not.
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
