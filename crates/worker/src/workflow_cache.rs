use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use windlass_core::{Task, TaskKey};

use crate::workflow::Instance;

/// The sticky cache: workflows in memory between their turns. The least recently cached ones are
/// evicted.
pub(crate) struct WorkflowCache {
    capacity: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    instances: BTreeMap<TaskKey, Entry>,
    /// The cached workflows, least recently cached first.
    order: BTreeMap<u64, TaskKey>,
    count: u64,
}

impl Entries {
    fn remove(&mut self, key: &TaskKey) -> Option<Entry> {
        let entry = self.instances.remove(key)?;
        self.order.remove(&entry.nth);
        Some(entry)
    }
}

struct Entry {
    instance: Instance,
    at: Position,
    /// Whether this state is known to be committed, and the workflow not leased.
    settled: bool,
    nth: u64,
}

/// A position in the history of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) execution: u32,
    /// The number of rows.
    pub(crate) turns: u32,
    /// Of the lease that wrote the last row: another worker may have written a different one.
    pub(crate) epoch: u64,
}

impl Position {
    pub(crate) fn of(task: &Task) -> Option<Self> {
        let turns = task.workflow.as_ref()?.turns;
        let epoch = task.last_settle.as_ref().map_or(0, |settle| settle.epoch);
        Some(Self { execution: task.execution, turns, epoch })
    }

    /// The position this many rows later.
    pub(crate) fn after(self, rows: usize) -> Self {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        Self { turns: self.turns.saturating_add(rows), ..self }
    }
}

impl fmt::Debug for WorkflowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkflowCache({} of {})", self.entries().instances.len(), self.capacity)
    }
}

impl WorkflowCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().expect("no panic while the cache is locked")
    }

    /// Evicts all workflows and returns their keys.
    pub(crate) fn clear(&self) -> Vec<TaskKey> {
        let entries = std::mem::take(&mut *self.entries());
        entries.instances.into_keys().collect()
    }

    /// Evicts workflows without a turn in progress, as far as is known here. Returns their keys.
    pub(crate) fn take_idle(&self) -> Vec<TaskKey> {
        let mut entries = self.entries();
        let idle = entries.instances.iter().filter(|(_, entry)| entry.settled);
        let idle: Vec<TaskKey> = idle.map(|(key, _)| key.clone()).collect();
        let dropped: Vec<_> = idle.iter().filter_map(|key| entries.remove(key)).collect();
        drop(entries);
        // Dropping runs user code, so it happens outside of the lock.
        drop(dropped);
        idle
    }

    /// Takes the workflow, if it is cached at the position that the store has. A stale entry is
    /// dropped.
    pub(crate) fn take(&self, task: &Task) -> Option<Instance> {
        let entry = self.entries().remove(&task.task_key())?;
        (Position::of(task) == Some(entry.at)).then_some(entry.instance)
    }

    /// Takes the workflow, if it is cached at this position. Any other entry is left alone.
    pub(crate) fn take_at(&self, key: &TaskKey, at: Position) -> Option<Instance> {
        let mut entries = self.entries();
        entries.instances.get(key).filter(|entry| entry.at == at)?;
        entries.remove(key).map(|entry| entry.instance)
    }

    /// Takes the workflow, if it has no turn in progress, as far as is known here, and one open
    /// task. With more open tasks, its inputs are left to a turn that takes several at once.
    pub(crate) fn take_settled(&self, key: &TaskKey) -> Option<(Instance, Position)> {
        let mut entries = self.entries();
        entries.instances.get(key).filter(|entry| entry.settled && entry.instance.tasks() == 1)?;
        entries.remove(key).map(|entry| (entry.instance, entry.at))
    }

    /// Marks this position as committed, and the workflow as not leased.
    pub(crate) fn settled(&self, key: &TaskKey, at: Position) {
        if let Some(entry) = self.entries().instances.get_mut(key).filter(|entry| entry.at == at) {
            entry.settled = true;
        }
    }

    pub(crate) fn insert(&self, key: TaskKey, at: Position, instance: Instance) {
        let mut entries = self.entries();
        entries.count += 1;
        let nth = entries.count;
        let mut dropped = vec![entries.remove(&key)];
        entries.order.insert(nth, key.clone());
        entries.instances.insert(key, Entry { instance, at, settled: false, nth });
        while entries.instances.len() > self.capacity {
            let Some((_, oldest)) = entries.order.pop_first() else { break };
            dropped.push(entries.instances.remove(&oldest));
        }
        drop(entries);
        // Dropping runs user code, so it happens outside of the lock.
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::{ExecutionStart, StepError, Workflow, WorkflowDefinition};

    const AT: Position = Position { execution: 0, turns: 1, epoch: 7 };

    fn instance() -> Instance {
        async fn idle(_: Workflow, (): ()) -> Result<(), StepError> {
            Ok(())
        }
        Instance::begin(&WorkflowDefinition::named("idle", idle), ExecutionStart::new("t", 0))
    }

    fn key(id: &str) -> TaskKey {
        TaskKey::new(&windlass_core::Tenant::default(), &id.into())
    }

    #[test]
    fn the_oldest_workflow_is_evicted_when_the_cache_is_full() {
        let cache = WorkflowCache::new(2);
        cache.insert(key("a"), AT, instance());
        // However often another one is cached and taken.
        for _ in 0..100 {
            cache.insert(key("b"), AT, instance());
            assert!(cache.take_at(&key("b"), AT).is_some());
        }
        cache.insert(key("b"), AT, instance());
        cache.insert(key("c"), AT, instance());
        assert!(cache.take_at(&key("a"), AT).is_none(), "it was the oldest of three");
        assert_eq!(cache.clear(), [key("b"), key("c")]);
    }

    #[test]
    fn a_workflow_is_taken_only_at_its_position() {
        let cache = WorkflowCache::new(2);
        cache.insert(key("a"), AT, instance());
        assert!(cache.take_at(&key("a"), AT.after(1)).is_none());
        assert!(cache.take_settled(&key("a")).is_none(), "its commit is not entry");
        cache.settled(&key("a"), AT.after(1));
        assert!(cache.take_settled(&key("a")).is_none(), "that was another position");
        assert!(cache.take_idle().is_empty(), "a turn may be in progress");
        assert!(cache.take_at(&key("a"), AT).is_some());
        assert_eq!(cache.entries().order.len(), 0);
    }
}
