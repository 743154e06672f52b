use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use windlass_core::{Task, TaskKey};

use crate::workflow::Instance;

/// Workflows that this worker has in memory between their turns: as many as it may have, those
/// that were touched last.
pub(crate) struct Cache {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    instances: BTreeMap<TaskKey, Entry>,
    /// The order in which they were kept; those that were taken since are passed over.
    order: VecDeque<(TaskKey, u64)>,
    count: u64,
}

struct Entry {
    instance: Instance,
    at: Position,
    /// It is known to be in the store like that, and nobody has a lease of it.
    settled: bool,
    nth: u64,
}

/// Where the history of a workflow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) generation: u32,
    /// How many rows it has.
    pub(crate) turns: u32,
    /// Of the lease under which the last was written: another worker may have written others.
    pub(crate) epoch: u64,
}

impl Position {
    pub(crate) fn of(task: &Task) -> Option<Self> {
        let turns = task.workflow.as_ref()?.turns;
        let epoch = task.last_settle.as_ref().map_or(0, |settle| settle.epoch);
        Some(Self { generation: task.generation, turns, epoch })
    }

    /// With so many rows more.
    pub(crate) fn after(self, rows: usize) -> Self {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        Self { turns: self.turns.saturating_add(rows), ..self }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} of {})", self.kept().instances.len(), self.most)
    }
}

impl Cache {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nothing panics while it holds the workflows in memory")
    }

    /// Forgets all of them. Says which there were.
    pub(crate) fn clear(&self) -> Vec<TaskKey> {
        let kept = std::mem::take(&mut *self.kept());
        kept.instances.into_keys().collect()
    }

    /// The workflow as it is in the store, if it is in memory. One that is not as the store has it
    /// is of no use.
    pub(crate) fn take(&self, task: &Task) -> Option<Instance> {
        self.take_at(&task.task_key(), Position::of(task)?)
    }

    pub(crate) fn take_at(&self, key: &TaskKey, at: Position) -> Option<Instance> {
        let known = self.kept().instances.remove(key)?;
        (at == known.at).then_some(known.instance)
    }

    /// The workflow, if nobody makes a turn of it, as far as is known here. While it has much under
    /// way somebody is about to: that is left to a turn that gathers what has come.
    pub(crate) fn take_settled(&self, key: &TaskKey) -> Option<(Instance, Position)> {
        let mut kept = self.kept();
        kept.instances.get(key).filter(|entry| entry.settled && entry.instance.tasks() == 1)?;
        kept.instances.remove(key).map(|entry| (entry.instance, entry.at))
    }

    /// What was kept like that is in the store, and nobody has a lease of it.
    pub(crate) fn settled(&self, key: &TaskKey, at: Position) {
        if let Some(entry) = self.kept().instances.get_mut(key).filter(|entry| entry.at == at) {
            entry.settled = true;
        }
    }

    pub(crate) fn keep(&self, key: TaskKey, at: Position, instance: Instance) {
        let mut dropped = Vec::new();
        let mut kept = self.kept();
        kept.count += 1;
        let nth = kept.count;
        kept.order.push_back((key.clone(), nth));
        dropped.extend(kept.instances.insert(key, Entry { instance, at, settled: false, nth }));
        while kept.instances.len() > self.most || kept.order.len() > 4 * self.most {
            let Some((oldest, nth)) = kept.order.pop_front() else { break };
            if kept.instances.get(&oldest).is_some_and(|entry| entry.nth == nth) {
                dropped.extend(kept.instances.remove(&oldest));
            }
        }
        drop(kept);
        // What the code of users does when it is dropped is nobody's to wait for.
        drop(dropped);
    }
}
