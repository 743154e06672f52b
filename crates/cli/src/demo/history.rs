use std::collections::BTreeMap;

use windlass::{Change, Fence, LogEvent, TaskId, WorkerId};

/// The events of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(crate) created: u32,
    /// Epoch and worker of every claim, in order.
    pub(crate) claims: Vec<(u64, WorkerId)>,
    /// The numbers of the counted attempts, in order.
    pub(crate) attempts: Vec<u32>,
    /// The epoch of the first attempt. A released attempt is not counted and starts again.
    first: Option<u64>,
    /// The epochs of expired leases.
    pub(crate) expired: Vec<u64>,
    pub(crate) retries: u32,
    /// The final state, once for each time that it ended.
    pub(crate) endings: Vec<String>,
    /// The epochs under which it was completed.
    pub(crate) completed: Vec<u64>,
}

impl Story {
    pub(crate) fn claimed_by(&self, epoch: u64) -> Option<&WorkerId> {
        self.claims.iter().find(|(claimed, _)| *claimed == epoch).map(|(_, worker)| worker)
    }

    /// Whether the first attempt ended before its lease expired.
    pub(crate) fn first_ended(&self) -> bool {
        self.first.is_some_and(|epoch| !self.expired.contains(&epoch))
    }

    fn begin(&mut self, epoch: u64, attempt: Option<u32>) {
        if attempt == Some(1) {
            self.first = Some(epoch);
        }
        self.attempts.extend(attempt);
    }

    /// Whether an expired lease was followed by a claim under the next epoch.
    pub(crate) fn recovered(&self, epoch: u64) -> bool {
        self.expired.contains(&epoch) && self.claimed_by(epoch + 1).is_some()
    }
}

/// The log of a demo by task.
#[derive(Debug, Default)]
pub(crate) struct History(pub(crate) BTreeMap<TaskId, Story>);

impl History {
    pub(crate) fn note(&mut self, entry: &LogEvent) {
        let (Some(task), Some(change)) = (&entry.task, entry.change()) else { return };
        let story = self.0.entry(task.clone()).or_default();
        match change {
            Change::Created => story.created += 1,
            Change::Claimed { epoch, worker, attempt } => {
                story.claims.push((epoch, worker));
                story.begin(epoch, attempt);
            }
            Change::Begun { epoch, attempt } => story.begin(epoch, Some(attempt)),
            // A released or snoozed attempt is not counted.
            Change::Released { .. } | Change::Snoozed { .. } => drop(story.attempts.pop()),
            Change::LeaseExpired { epoch, .. } => story.expired.push(epoch),
            Change::RetryScheduled { .. } => story.retries += 1,
            Change::Completed { epoch } => {
                story.completed.push(epoch);
                story.endings.push(entry.name.clone());
            }
            Change::Failed { .. } | Change::Cancelled { .. } | Change::Expired => {
                story.endings.push(entry.name.clone());
            }
            _ => {}
        }
    }

    pub(crate) fn stories(&self) -> impl Iterator<Item = (&TaskId, &Story)> {
        self.0.iter()
    }

    pub(crate) fn of(&self, task: &TaskId) -> Option<&Story> {
        self.0.get(task)
    }

    pub(crate) fn ended(&self) -> usize {
        self.0.values().filter(|story| !story.endings.is_empty()).count()
    }

    pub(crate) fn sum(&self, count: impl Fn(&Story) -> u32) -> u32 {
        self.0.values().map(count).sum()
    }

    pub(crate) fn recovered(&self, fence: &Fence) -> bool {
        self.of(&fence.task.id).is_some_and(|story| story.recovered(fence.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_attempt_starts_again() {
        let mut story = Story::default();
        story.begin(5, Some(1));
        story.attempts.pop();
        story.begin(6, Some(1));
        assert_eq!(story.attempts, [1]);
        assert!(story.first_ended());
        story.expired.push(5);
        assert!(story.first_ended());
        story.expired.push(6);
        story.begin(7, Some(2));
        assert!(!story.first_ended());
        assert_eq!(story.attempts, [1, 2]);
    }
}
