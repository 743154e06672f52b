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
    /// Which execution it is, and how many rows its history has.
    position: (u32, u32),
    nth: u64,
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
        self.take_at(&task.task_key(), position(task)?)
    }

    pub(crate) fn take_at(&self, key: &TaskKey, position: (u32, u32)) -> Option<Instance> {
        let known = self.kept().instances.remove(key)?;
        (position == known.position).then_some(known.instance)
    }

    pub(crate) fn keep(&self, key: TaskKey, position: (u32, u32), instance: Instance) {
        let mut dropped = Vec::new();
        let mut kept = self.kept();
        kept.count += 1;
        let nth = kept.count;
        kept.order.push_back((key.clone(), nth));
        dropped.extend(kept.instances.insert(key, Entry { instance, position, nth }));
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

/// Where the history of a workflow stands.
pub(crate) fn position(task: &Task) -> Option<(u32, u32)> {
    task.workflow.as_ref().map(|workflow| (task.generation, workflow.turns))
}
