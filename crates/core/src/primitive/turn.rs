//! The lease of a workflow after a turn, and the eager leases of a turn.

use std::sync::Arc;

use crate::digest::Digest;
use crate::name::{TaskId, WorkerId};
use crate::primitive::lease;
use crate::task::{Fence, Task, TaskKey};
use crate::time::Timestamp;
use crate::world::{Halt, World, unless_quarantined};

/// Retains the lease of a workflow after a turn, and stores the digest of that turn.
pub(crate) fn keep_lease(world: &mut World, current: &Task, turn: Option<Digest>) -> Arc<Task> {
    let mut task = current.clone();
    if let Some(workflow) = &mut task.workflow {
        workflow.last_kept_turn = turn;
    }
    let task = Arc::new(task);
    world.put::<Task>(task.clone());
    task
}

/// Whether this was the last turn and the lease retained after it is live. For a speculative turn,
/// `worker` must hold that lease.
pub(crate) fn lease_kept(
    task: &Task,
    fence: &Fence,
    turn: Digest,
    worker: Option<&WorkerId>,
    now: Timestamp,
) -> bool {
    let last = task.workflow.as_ref().and_then(|workflow| workflow.last_kept_turn);
    let lease = lease::lease(task, fence.epoch, now);
    last == Some(turn)
        && lease.is_ok_and(|lease| worker.is_none_or(|worker| lease.worker == *worker))
}

/// The activity of a step, if its eager lease to this worker is live. An activity that the worker
/// claimed in the usual way is not returned.
pub(crate) fn eager_lease(
    world: &mut World,
    workflow: &TaskKey,
    (step, id): (u64, &TaskId),
    worker: &WorkerId,
) -> Result<Option<Arc<Task>>, Halt> {
    let now = world.now();
    let task = world.get::<Task>(&TaskKey::new(&workflow.tenant, id).row_key());
    let is_eager_lease = |task: &Arc<Task>| {
        let is_step = task.step == Some(step) && task.parent.as_ref() == Some(&workflow.id);
        let lease = lease::lease(task, task.epoch, now);
        is_step && lease.is_ok_and(|lease| lease.eager && lease.worker == *worker)
    };
    Ok(unless_quarantined(task)?.flatten().filter(is_eager_lease))
}
