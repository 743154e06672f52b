use std::collections::BTreeMap;

use windlass::{Change, Fence, LogEvent, TaskId, WorkerId};

/// The events of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskEvents {
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

impl TaskEvents {
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
pub(crate) struct History(pub(crate) BTreeMap<TaskId, TaskEvents>);

impl History {
    pub(crate) fn note(&mut self, entry: &LogEvent) {
        let (Some(task), Some(change)) = (&entry.task, entry.change()) else { return };
        let events = self.0.entry(task.clone()).or_default();
        match change {
            Change::Created => events.created += 1,
            Change::Claimed { epoch, worker, attempt } => {
                events.claims.push((epoch, worker));
                events.begin(epoch, attempt);
            }
            Change::Begun { epoch, attempt } => events.begin(epoch, Some(attempt)),
            // A released or snoozed attempt is not counted.
            Change::Released { .. } | Change::Snoozed { .. } => drop(events.attempts.pop()),
            Change::LeaseLost { epoch, .. } => events.expired.push(epoch),
            Change::RetryScheduled { .. } => events.retries += 1,
            Change::Completed { epoch } => {
                events.completed.push(epoch);
                events.endings.push(entry.name.clone());
            }
            Change::Failed { .. } | Change::Cancelled { .. } | Change::Expired => {
                events.endings.push(entry.name.clone());
            }
            _ => {}
        }
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = (&TaskId, &TaskEvents)> {
        self.0.iter()
    }

    pub(crate) fn of(&self, task: &TaskId) -> Option<&TaskEvents> {
        self.0.get(task)
    }

    pub(crate) fn ended(&self) -> usize {
        self.0.values().filter(|events| !events.endings.is_empty()).count()
    }

    pub(crate) fn sum(&self, count: impl Fn(&TaskEvents) -> u32) -> u32 {
        self.0.values().map(count).sum()
    }

    pub(crate) fn recovered(&self, fence: &Fence) -> bool {
        self.of(&fence.task.id).is_some_and(|events| events.recovered(fence.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_attempt_starts_again() {
        let mut events = TaskEvents::default();
        events.begin(5, Some(1));
        events.attempts.pop();
        events.begin(6, Some(1));
        assert_eq!(events.attempts, [1]);
        assert!(events.first_ended());
        events.expired.push(5);
        assert!(events.first_ended());
        events.expired.push(6);
        events.begin(7, Some(2));
        assert!(!events.first_ended());
        assert_eq!(events.attempts, [1, 2]);
    }
}
