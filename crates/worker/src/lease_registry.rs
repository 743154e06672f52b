use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};

use windlass_core::{Fence, HeldLeases, LeaseRequest, TaskId, limits};

/// The leases that a worker holds, and its requests in flight that may grant it more. Each
/// heartbeat reports them, so that the store ends leases that the worker does not know of.
#[derive(Debug)]
pub(crate) struct LeaseRegistry {
    instance: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    in_flight: BTreeSet<u64>,
    held: BTreeSet<(TaskId, u64)>,
}

/// A request in flight that may grant leases. Dropped when it is answered or abandoned.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    registry: Arc<LeaseRegistry>,
    number: u64,
}

/// A lease that is reported as held until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldLease {
    registry: Arc<LeaseRegistry>,
    lease: (TaskId, u64),
}

impl Default for LeaseRegistry {
    fn default() -> Self {
        // Other languages read it from JSON, where numbers are exact up to 2^53.
        let instance = RandomState::new().hash_one(()) >> 11;
        Self { instance, state: Mutex::default() }
    }
}

impl LeaseRegistry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the registry is locked")
    }

    pub(crate) fn request(self: &Arc<Self>) -> PendingRequest {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.in_flight.insert(number);
        PendingRequest { registry: self.clone(), number }
    }

    /// The leases for a heartbeat; none if there are more than it can report.
    pub(crate) fn report(&self) -> Option<HeldLeases> {
        let state = self.state();
        limits::HELD_LEASES.check(state.held.len()).ok()?;
        Some(HeldLeases {
            instance: self.instance,
            responded_below: state.in_flight.first().copied().unwrap_or(state.next),
            leases: state.held.clone(),
        })
    }
}

impl PendingRequest {
    /// The id of the request, stored in the leases that it grants.
    pub(crate) fn id(&self) -> LeaseRequest {
        LeaseRequest { instance: self.registry.instance, number: self.number }
    }

    /// Registers a lease that the response granted.
    pub(crate) fn granted(&self, fence: &Fence) -> HeldLease {
        let lease = (fence.task.id.clone(), fence.epoch);
        self.registry.state().held.insert(lease.clone());
        HeldLease { registry: self.registry.clone(), lease }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.registry.state().in_flight.remove(&self.number);
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.registry.state().held.remove(&self.lease);
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{TaskKey, Tenant};

    use super::*;

    fn fence(id: &str, epoch: u64) -> Fence {
        Fence { task: TaskKey { tenant: Tenant::default(), id: id.into() }, epoch }
    }

    fn reported(registry: &LeaseRegistry) -> (u64, Vec<(String, u64)>) {
        let report = registry.report().expect("it is within the limit");
        let leases = report.leases.iter().map(|(task, epoch)| (task.to_string(), *epoch));
        (report.responded_below, leases.collect())
    }

    #[test]
    fn a_lease_is_held_before_its_request_is_answered() {
        let registry = Arc::new(LeaseRegistry::default());
        let (first, second) = (registry.request(), registry.request());
        let third = registry.request();
        assert_eq!(reported(&registry), (0, vec![]));
        drop(second);
        assert_eq!(reported(&registry).0, 0, "the first is in flight");
        let held = first.granted(&fence("a", 7));
        drop(first);
        assert_eq!(reported(&registry), (2, vec![("a".into(), 7)]));
        drop(third);
        drop(held);
        assert_eq!(reported(&registry), (3, vec![]));
    }

    #[test]
    fn leases_of_one_task_are_distinct() {
        let registry = Arc::new(LeaseRegistry::default());
        let request = registry.request();
        let first = request.granted(&fence("a", 7));
        let _second = request.granted(&fence("a", 8));
        drop(first);
        assert_eq!(reported(&registry).1, [("a".into(), 8)]);
    }
}
