use std::collections::BTreeMap;

use windlass_core::{Outcome, Task, Wake};

use crate::answer::Answer;
use crate::batch::found_nothing;
use crate::inbox::Job;
use crate::waiters::{Waiters, concerns};

/// What has become ready and is not known to be taken: for each such task one waiting claim is
/// called. A claim may take another task than it was called for, so that a call counts as answered
/// only by a task of its own lane and route, or by a claim that could have served it and found
/// nothing at all.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    open: BTreeMap<Wake, u32>,
    /// Wakes of whole lanes, which call everybody at once.
    lanes: Vec<Wake>,
}

impl Calls {
    pub(crate) fn of(wakes: &[Wake]) -> Self {
        let mut calls = Self::default();
        calls.add(wakes);
        calls
    }

    fn add(&mut self, wakes: &[Wake]) {
        for wake in wakes {
            match wake.route {
                Some(_) => *self.open.entry(wake.clone()).or_default() += 1,
                None => self.lanes.push(wake.clone()),
            }
        }
    }

    /// Takes out the claims that are called.
    pub(crate) fn call(&mut self, fresh: &[Wake], waiters: &mut Waiters) -> Vec<Job> {
        self.add(fresh);
        let mut called = waiters.take(self.lanes.drain(..).collect::<Vec<_>>().iter());
        for (wake, count) in &self.open {
            called.extend(waiters.take(std::iter::repeat_n(wake, *count as usize)));
        }
        called
    }

    /// Notes what a job of the batch came to.
    pub(crate) fn answered(&mut self, job: &Job, answers: &[Option<Answer>]) {
        for answer in answers.iter().flatten() {
            if let Ok(Outcome::Claimed(tasks)) = answer {
                tasks.iter().for_each(|task| self.take(task));
            }
            if job.waits() && found_nothing(answer) {
                self.open.retain(|wake, _| !concerns(wake, job));
            }
        }
    }

    fn take(&mut self, task: &Task) {
        let wake = Wake {
            tenant: task.tenant.clone(),
            lane: task.lane.clone(),
            route: Some(task.route.clone()),
        };
        if let Some(count) = self.open.get_mut(&wake) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&wake);
            }
        }
    }
}
