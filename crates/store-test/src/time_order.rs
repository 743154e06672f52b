//! The times of a log with concurrent writers: for each task they never decrease.

use std::sync::Arc;

use windlass_core::command::{Claim, Complete, Create, NewTask, Renew, SendMessages};
use windlass_core::{Command, LogEvent, Outcome};
use windlass_store::{Store, StoreError};

use crate::log_fold::LogFold;
use crate::runner::execute;

/// Writers per handle, and tasks per writer.
const WRITERS: usize = 4;
const TASKS: usize = 30;

/// How far the times of a log are out of order.
#[derive(Clone, Copy, Debug)]
pub struct TimeOrder {
    pub entries: usize,
    /// Entries that are earlier than a previous one.
    pub falls: usize,
    /// By how much at most.
    pub most_ms: u64,
}

/// Lets concurrent writers create, claim, renew and complete tasks through these handles on one
/// store, reads the log, and panics if the entries of a task are not in order.
pub async fn run(handles: &[Arc<dyn Store>]) -> TimeOrder {
    let writers: Vec<_> = handles
        .iter()
        .flat_map(|handle| (0..WRITERS).map(move |_| handle.clone()))
        .enumerate()
        .map(|(number, store)| tokio::spawn(async move { write(&*store, number).await }))
        .collect();
    for writer in writers {
        writer.await.expect("a writer does not panic");
    }
    let entries = handles[0].events(0, usize::MAX >> 1).await.expect("the log can be read");
    check(&entries)
}

/// Checks the order of a log.
pub fn check(entries: &[LogEvent]) -> TimeOrder {
    let mut fold = LogFold::default();
    for entry in entries {
        fold.read(entry).unwrap_or_else(|what| panic!("entry {}: {what}", entry.seq));
    }
    let (falls, most_ms) = LogFold::falls(entries);
    TimeOrder { entries: entries.len(), falls, most_ms }
}

async fn write(store: &dyn Store, number: usize) {
    for task in 0..TASKS {
        let id = format!("{number}-{task}");
        until_done(store, Create::one(NewTask::new(id.clone(), "order")).into()).await;
        let claim = Claim::new(format!("w{number}"));
        let Some(Outcome::Claimed(claimed)) = until_done(store, claim.into()).await else {
            continue;
        };
        for task in claimed {
            let (fence, lease_ms) = (task.fence(), 60_000);
            let message = windlass_core::command::NewMessage::new(task.id.clone(), "go", "ops");
            until_done(store, Renew { fence: fence.clone(), lease_ms }.into()).await;
            until_done(store, SendMessages::one(message).into()).await;
            until_done(store, Complete { fence, result: None }.into()).await;
        }
    }
}

/// None if the command was rejected.
async fn until_done(store: &dyn Store, command: Command) -> Option<Outcome> {
    loop {
        match execute(store, &command).await {
            Ok(answer) => return answer.ok(),
            Err(StoreError::Conflict) => tokio::task::yield_now().await,
            Err(other) => panic!("{command:?}: {other}"),
        }
    }
}
