use std::collections::BTreeMap;

use windlass_core::{Outcome, Task, Wake};

use crate::batch::found_nothing;
use crate::command_queue::Submission;
use crate::reply::CommandResult;
use crate::waiters::{Waiters, matches_claim};

/// Matches wakes to waiting claims: one claim for each task that became ready. A claim may lease a
/// different task than the one that woke it, so a wake is consumed only by a task of the same
/// lane and route, or by a matching claim that found nothing.
#[derive(Debug, Default)]
pub(crate) struct WakeMatcher {
    open: BTreeMap<Wake, u32>,
    /// Wakes of whole lanes; each wakes every matching claim.
    lanes: Vec<Wake>,
}

impl WakeMatcher {
    pub(crate) fn of(wakes: &[Wake]) -> Self {
        let mut matcher = Self::default();
        matcher.add(wakes);
        matcher
    }

    fn add(&mut self, wakes: &[Wake]) {
        for wake in wakes {
            match wake.route {
                Some(_) => *self.open.entry(wake.clone()).or_default() += 1,
                None => self.lanes.push(wake.clone()),
            }
        }
    }

    /// Takes the claims to wake out of `waiters`.
    pub(crate) fn pull_waiters(
        &mut self,
        fresh: &[Wake],
        waiters: &mut Waiters,
    ) -> Vec<Submission> {
        self.add(fresh);
        let mut pulled = waiters.take(self.lanes.drain(..).collect::<Vec<_>>().iter());
        for (wake, count) in &self.open {
            pulled.extend(waiters.take(std::iter::repeat_n(wake, *count as usize)));
        }
        pulled
    }

    /// Consumes the wakes that the results of a job account for.
    pub(crate) fn consume(&mut self, job: &Submission, results: &[Option<CommandResult>]) {
        for result in results.iter().flatten() {
            if let Ok(Outcome::Claimed(tasks)) = result {
                tasks.iter().for_each(|task| self.take(task));
            }
            if job.waits() && found_nothing(result) {
                self.open.retain(|wake, _| !matches_claim(wake, job));
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
