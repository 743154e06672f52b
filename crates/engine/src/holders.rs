use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use windlass_core::{TaskKey, Wake};

use crate::engine::Engine;

/// Local lease holders by task, to be notified of revocation.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<BTreeMap<TaskKey, Arc<Notify>>>);

/// Watches one lease for revocation until it is dropped.
#[derive(Debug)]
pub struct LeaseWatch {
    holders: Arc<Holders>,
    task: TaskKey,
    told: Arc<Notify>,
}

impl Holders {
    fn held(&self) -> MutexGuard<'_, BTreeMap<TaskKey, Arc<Notify>>> {
        self.0.lock().expect("no code panics while holding the lease map")
    }

    /// Notifies the holders of tasks that these wakes report as revoked.
    pub(crate) fn tell<'w>(&self, wakes: impl Iterator<Item = &'w Wake>) {
        for task in wakes.filter_map(Wake::revoked_task) {
            if let Some(told) = self.held().get(&task) {
                told.notify_one();
            }
        }
    }

    /// Notifies all holders: any lease may have been revoked.
    pub(crate) fn tell_all(&self) {
        self.held().values().for_each(|told| told.notify_one());
    }
}

impl Engine {
    /// Watches the lease of a task that is being processed in this process.
    pub fn watch_lease(&self, task: &TaskKey) -> LeaseWatch {
        let (holders, told) = (self.holders().clone(), Arc::new(Notify::new()));
        holders.held().insert(task.clone(), told.clone());
        LeaseWatch { holders, task: task.clone(), told }
    }
}

impl LeaseWatch {
    /// Waits for a notification that the lease may have been revoked. It is only a hint: read the
    /// task or renew the lease to be sure.
    pub async fn revoked(&self) {
        self.told.notified().await;
    }
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        let mut held = self.holders.held();
        if held.get(&self.task).is_some_and(|told| Arc::ptr_eq(told, &self.told)) {
            held.remove(&self.task);
        }
    }
}
