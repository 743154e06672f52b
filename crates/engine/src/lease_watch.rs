use windlass_core::TaskKey;

use crate::engine::Engine;
use crate::keyed_notify::KeyWaiter;

/// Watches one lease for revocation until it is dropped.
#[derive(Debug)]
pub struct LeaseWatch(KeyWaiter<TaskKey>);

impl Engine {
    /// Watches the lease of a task that is being processed in this process.
    pub fn watch_lease(&self, task: &TaskKey) -> LeaseWatch {
        LeaseWatch(self.revocations().register(task))
    }
}

impl LeaseWatch {
    /// Waits for a notification that the lease may have been revoked. It is only a hint: read the
    /// task or renew the lease to be sure.
    pub async fn revoked(&mut self) {
        self.0.notified().await;
    }
}
