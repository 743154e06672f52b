use std::sync::Arc;

use windlass_core::command::Release;
use windlass_core::{Command, Fence, Outcome};

use crate::answer::{Answers, Claimed, Reply};
use crate::error::Error;
use crate::inbox::{Inbox, Job};

/// A reply in flight. If the caller has left, dropping it releases the leases it contains; their
/// attempts are not counted.
#[derive(Debug)]
pub(crate) struct Handed<T: Leases> {
    answer: Option<T>,
    inbox: Arc<Inbox>,
}

/// A reply that may contain leases.
pub(crate) trait Leases {
    fn fences(&self) -> Vec<Fence>;
}

impl Leases for Answers {
    fn fences(&self) -> Vec<Fence> {
        let tasks = self.each.iter().flatten().filter_map(|outcome| match outcome {
            Outcome::Claimed(tasks) | Outcome::Turned { claimed: tasks, .. } => Some(tasks),
            _ => None,
        });
        tasks.flatten().map(|task| task.fence()).collect()
    }
}

impl Leases for Result<Vec<Claimed>, Error> {
    fn fences(&self) -> Vec<Fence> {
        self.iter().flatten().map(|claimed| claimed.task.fence()).collect()
    }
}

impl<T: Leases> Handed<T> {
    pub(crate) fn new(answer: T, inbox: Arc<Inbox>) -> Self {
        Self { answer: Some(answer), inbox }
    }

    pub(crate) fn take(mut self) -> T {
        self.answer.take().expect("the reply is taken once")
    }
}

impl<T: Leases> Drop for Handed<T> {
    fn drop(&mut self) {
        let fences = self.answer.take().map(|answer| answer.fences()).unwrap_or_default();
        if !fences.is_empty() {
            let release = |fence| Command::from(Release { fence });
            let commands = fences.into_iter().map(release).collect();
            self.inbox.push_release(Job::new(commands, Reply::Nobody));
        }
    }
}
