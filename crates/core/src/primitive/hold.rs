use std::sync::Arc;

use crate::rejection::Rejection;
use crate::task::{Fence, Lease, Lifecycle, Task, TaskKey};
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// The task, or a rejection that there is none.
pub(crate) fn task(world: &mut World, key: &TaskKey) -> Result<Arc<Task>, Halt> {
    key.check()?;
    world.get::<Task>(&key.row_key())?.ok_or(Halt::Rejected(Rejection::TaskNotFound))
}

/// The task and its lease, for whoever holds it under this fence.
pub(crate) fn held(world: &mut World, fence: &Fence) -> Result<(Arc<Task>, Lease), Halt> {
    let task = task(world, &fence.task)?;
    let lease = lease(&task, fence.epoch, world.now())?.clone();
    Ok((task, lease))
}

/// The fence: a write counts only under the epoch of the lease that is alive.
pub(super) fn lease(task: &Task, epoch: u64, now: Timestamp) -> Result<&Lease, Rejection> {
    if task.epoch != epoch {
        return Err(Rejection::Stale { current: task.epoch });
    }
    match &task.lifecycle {
        Lifecycle::Active(lease) if now < lease.expires_at || task.policy.accept_late => Ok(lease),
        Lifecycle::Active(_) => Err(Rejection::LeaseExpired),
        other if other.ended_at().is_some() => Err(Rejection::Ended { state: other.public() }),
        _ => Err(Rejection::NotLeased),
    }
}

/// Whether this very lease ran out and was swept up, nothing has happened to the task since, and
/// its policy says that the late holder may still settle it.
pub(super) fn was_lost_unraced(task: &Task, epoch: u64) -> bool {
    let lost = task.lifecycle.turn().and_then(|turn| turn.lost);
    task.policy.accept_late && lost == Some(epoch)
}
