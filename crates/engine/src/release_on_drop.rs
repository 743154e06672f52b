use std::sync::Arc;

use windlass_core::command::Release;
use windlass_core::{Command, Fence, Outcome};

use crate::command_queue::{CommandQueue, Submission};
use crate::error::Error;
use crate::reply::{ClaimedTask, CommandResults, Reply};

/// A reply in flight. If the caller has left, dropping it releases the leases it contains; their
/// attempts are not counted.
#[derive(Debug)]
pub(crate) struct ReleaseOnDrop<T: CarriesLeases> {
    result: Option<T>,
    queue: Arc<CommandQueue>,
}

/// A reply that may contain leases.
pub(crate) trait CarriesLeases {
    fn fences(&self) -> Vec<Fence>;
}

impl CarriesLeases for CommandResults {
    fn fences(&self) -> Vec<Fence> {
        let tasks = self.results.iter().flatten().filter_map(|outcome| match outcome {
            Outcome::Claimed(tasks) | Outcome::TurnCommitted { claimed: tasks, .. } => Some(tasks),
            _ => None,
        });
        tasks.flatten().map(|task| task.fence()).collect()
    }
}

impl CarriesLeases for Result<Vec<ClaimedTask>, Error> {
    fn fences(&self) -> Vec<Fence> {
        self.iter().flatten().map(|claimed| claimed.task.fence()).collect()
    }
}

impl<T: CarriesLeases> ReleaseOnDrop<T> {
    pub(crate) fn new(result: T, queue: Arc<CommandQueue>) -> Self {
        Self { result: Some(result), queue }
    }

    pub(crate) fn take(mut self) -> T {
        self.result.take().expect("the reply is taken once")
    }
}

impl<T: CarriesLeases> Drop for ReleaseOnDrop<T> {
    fn drop(&mut self) {
        let fences = self.result.take().map(|result| result.fences()).unwrap_or_default();
        if !fences.is_empty() {
            let release = |fence| Command::from(Release { fence });
            let commands = fences.into_iter().map(release).collect();
            self.queue.push_release(Submission::new(commands, Reply::Discard));
        }
    }
}
