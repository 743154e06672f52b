use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use windlass_core::{TaskKey, Wake};

use crate::engine::Engine;

/// Who works here on which task, to be told when it is taken away.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<BTreeMap<TaskKey, Arc<Notify>>>);

/// A task that somebody works on, until this is dropped.
#[derive(Debug)]
pub struct Holding {
    holders: Arc<Holders>,
    task: TaskKey,
    told: Arc<Notify>,
}

impl Holders {
    fn held(&self) -> MutexGuard<'_, BTreeMap<TaskKey, Arc<Notify>>> {
        self.0.lock().expect("nothing panics while it holds the names of what is worked on")
    }

    /// Passes on what these wakes tell of tasks that were taken away.
    pub(crate) fn tell<'w>(&self, wakes: impl Iterator<Item = &'w Wake>) {
        for task in wakes.filter_map(Wake::taken_away) {
            if let Some(told) = self.held().get(&task) {
                told.notify_one();
            }
        }
    }

    /// Any of them may have been taken away.
    pub(crate) fn tell_all(&self) {
        self.held().values().for_each(|told| told.notify_one());
    }
}

impl Engine {
    /// Says that somebody works here on a task, who is to hear when it is taken away.
    pub fn holding(&self, task: &TaskKey) -> Holding {
        let (holders, told) = (self.holders().clone(), Arc::new(Notify::new()));
        holders.held().insert(task.clone(), told.clone());
        Holding { holders, task: task.clone(), told }
    }
}

impl Holding {
    /// Waits for word that the task may have been taken away since this was last asked. It is a
    /// hint: only a look, or a renewal, tells.
    pub async fn disturbed(&self) {
        self.told.notified().await;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut held = self.holders.held();
        if held.get(&self.task).is_some_and(|told| Arc::ptr_eq(told, &self.told)) {
            held.remove(&self.task);
        }
    }
}
