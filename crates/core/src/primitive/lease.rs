use std::sync::Arc;

use crate::rejection::Rejection;
use crate::task::{Fence, Lease, Lifecycle, Task, TaskKey};
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// Loads a task; rejects if it does not exist.
pub(crate) fn require_task(world: &mut World, key: &TaskKey) -> Result<Arc<Task>, Halt> {
    key.check()?;
    world.get::<Task>(&key.row_key())?.ok_or(Halt::Rejected(Rejection::TaskNotFound))
}

/// Loads a task and requires the live lease of this fence.
pub(crate) fn require_lease(world: &mut World, fence: &Fence) -> Result<(Arc<Task>, Lease), Halt> {
    let task = require_task(world, &fence.task)?;
    let lease = lease(&task, fence.epoch, world.now())?.clone();
    Ok((task, lease))
}

/// Checks a fence: only writes under the epoch of the live lease are accepted.
pub(super) fn lease(task: &Task, epoch: u64, now: Timestamp) -> Result<&Lease, Rejection> {
    if task.epoch != epoch {
        return Err(Rejection::StaleFence { current: task.epoch });
    }
    match &task.lifecycle {
        Lifecycle::Active(lease) if now < lease.expires_at || task.policy.accept_expired_lease => {
            Ok(lease)
        }
        Lifecycle::Active(_) => Err(Rejection::LeaseExpired),
        other if other.ended_at().is_some() => {
            Err(Rejection::AlreadyTerminal { state: other.public() })
        }
        _ => Err(Rejection::NotLeased),
    }
}

/// Whether this lease expired and was swept, the task has not changed since, and its policy accepts
/// a late settle.
pub(super) fn lost_without_new_claim(task: &Task, epoch: u64) -> bool {
    let lost = task.lifecycle.readiness().and_then(|ready| ready.lost_epoch);
    task.policy.accept_expired_lease && lost == Some(epoch)
}
