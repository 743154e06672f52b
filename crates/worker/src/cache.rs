use std::collections::BTreeMap;
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
    /// The order in which they were kept.
    order: BTreeMap<u64, TaskKey>,
    count: u64,
}

impl Kept {
    fn remove(&mut self, key: &TaskKey) -> Option<Entry> {
        let entry = self.instances.remove(key)?;
        self.order.remove(&entry.nth);
        Some(entry)
    }
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

    /// Forgets those that nobody makes a turn of, as far as is known here. Says which.
    pub(crate) fn take_idle(&self) -> Vec<TaskKey> {
        let mut kept = self.kept();
        let idle = kept.instances.iter().filter(|(_, entry)| entry.settled);
        let idle: Vec<TaskKey> = idle.map(|(key, _)| key.clone()).collect();
        let dropped: Vec<_> = idle.iter().filter_map(|key| kept.remove(key)).collect();
        drop(kept);
        // What the code of users does when it is dropped is nobody's to wait for.
        drop(dropped);
        idle
    }

    /// The workflow as it is in the store, if it is in memory. One that is not as the store has it
    /// is of no use.
    pub(crate) fn take(&self, task: &Task) -> Option<Instance> {
        let known = self.kept().remove(&task.task_key())?;
        (Position::of(task) == Some(known.at)).then_some(known.instance)
    }

    /// The workflow, if it stands there. What somebody else has made of it is left alone.
    pub(crate) fn take_at(&self, key: &TaskKey, at: Position) -> Option<Instance> {
        let mut kept = self.kept();
        kept.instances.get(key).filter(|entry| entry.at == at)?;
        kept.remove(key).map(|entry| entry.instance)
    }

    /// The workflow, if nobody makes a turn of it, as far as is known here. While it has much under
    /// way somebody is about to: that is left to a turn that gathers what has come.
    pub(crate) fn take_settled(&self, key: &TaskKey) -> Option<(Instance, Position)> {
        let mut kept = self.kept();
        kept.instances.get(key).filter(|entry| entry.settled && entry.instance.tasks() == 1)?;
        kept.remove(key).map(|entry| (entry.instance, entry.at))
    }

    /// What was kept like that is in the store, and nobody has a lease of it.
    pub(crate) fn settled(&self, key: &TaskKey, at: Position) {
        if let Some(entry) = self.kept().instances.get_mut(key).filter(|entry| entry.at == at) {
            entry.settled = true;
        }
    }

    pub(crate) fn keep(&self, key: TaskKey, at: Position, instance: Instance) {
        let mut kept = self.kept();
        kept.count += 1;
        let nth = kept.count;
        let mut dropped = vec![kept.remove(&key)];
        kept.order.insert(nth, key.clone());
        kept.instances.insert(key, Entry { instance, at, settled: false, nth });
        while kept.instances.len() > self.most {
            let Some((_, oldest)) = kept.order.pop_first() else { break };
            dropped.push(kept.instances.remove(&oldest));
        }
        drop(kept);
        // What the code of users does when it is dropped is nobody's to wait for.
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::{Begin, Program, StepError, Workflow};

    const AT: Position = Position { generation: 0, turns: 1, epoch: 7 };

    fn instance() -> Instance {
        async fn idle(_: Workflow, (): ()) -> Result<(), StepError> {
            Ok(())
        }
        Instance::begin(&Program::named("idle", idle), Begin::new("t", 0))
    }

    fn key(id: &str) -> TaskKey {
        TaskKey::new(&windlass_core::Tenant::default(), &id.into())
    }

    #[test]
    fn only_those_go_for_which_there_is_no_room() {
        let cache = Cache::new(2);
        cache.keep(key("a"), AT, instance());
        // However often another one comes and goes.
        for _ in 0..100 {
            cache.keep(key("b"), AT, instance());
            assert!(cache.take_at(&key("b"), AT).is_some());
        }
        cache.keep(key("b"), AT, instance());
        cache.keep(key("c"), AT, instance());
        assert!(cache.take_at(&key("a"), AT).is_none(), "it was the oldest of three");
        assert_eq!(cache.clear(), [key("b"), key("c")]);
    }

    #[test]
    fn what_stands_elsewhere_is_left_to_whom_it_concerns() {
        let cache = Cache::new(2);
        cache.keep(key("a"), AT, instance());
        assert!(cache.take_at(&key("a"), AT.after(1)).is_none());
        assert!(cache.take_settled(&key("a")).is_none(), "its commit is not known");
        cache.settled(&key("a"), AT.after(1));
        assert!(cache.take_settled(&key("a")).is_none(), "that was another one");
        assert!(cache.take_idle().is_empty(), "somebody may be at it");
        assert!(cache.take_at(&key("a"), AT).is_some());
        assert_eq!(cache.kept().order.len(), 0);
    }
}
