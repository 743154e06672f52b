use crate::command::{Outcome, Transition};
use crate::digest::Digest;
use crate::event::{Change, Event};
use crate::primitive::transition::{end_lease, transition_to};
use crate::primitive::{lease, prefetch_step_completion, without_in_flight};
use crate::rejection::Rejection;
use crate::task::{FailureClass, Fence, Lifecycle, Retry, Settle, Settled, Task};
use crate::time::Timestamp;
use crate::world::World;

/// Whether a settle is accepted after its lease was swept, if the policy of the task allows it.
/// Settles without a result are not: the task is already back in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateSettle {
    IfAllowed,
    Never,
}

/// Ends a lease by its holder, once. A repeat returns the stored result and changes nothing; a
/// different settle under the same fence is rejected.
pub(crate) fn settle(
    world: &mut World,
    fence: &Fence,
    digest: Digest,
    late: LateSettle,
    next: impl FnOnce(&mut World, &mut Task, Timestamp) -> (Settled, Change),
) -> Transition {
    let now = world.now();
    let current = lease::require_task(world, &fence.task)?;
    if let Some(settled) = earlier_settle(&current, fence.epoch, digest)? {
        return Ok(Outcome::Settled(settled));
    }
    if late == LateSettle::Never || !lease::lost_without_new_claim(&current, fence.epoch) {
        lease::lease(&current, fence.epoch, now)?;
    }
    if current.step.is_some() {
        prefetch_step_completion(world, &current);
    }
    match late {
        LateSettle::IfAllowed => end_lease(world, &current)?,
        // A lease that ends without a result does not count as a delivery of its messages.
        LateSettle::Never => end_lease(world, &without_in_flight(&current))?,
    }
    let mut task = (*current).clone();
    let (settled, change) = next(world, &mut task, now);
    task.last_settle = Some(Settle { epoch: fence.epoch, digest, result: settled.clone() });
    world.emit(Event::of_task(&task, now, change));
    transition_to(world, task)?;
    Ok(Outcome::Settled(settled))
}

/// The stored result of an identical settle; none if this lease was not settled yet.
pub(crate) fn earlier_settle(
    task: &Task,
    epoch: u64,
    digest: Digest,
) -> Result<Option<Settled>, Rejection> {
    match task.last_settle.as_ref().filter(|last| last.epoch == epoch) {
        Some(last) if last.digest != digest => Err(Rejection::AlreadySettled),
        last => Ok(last.map(|last| last.result.clone())),
    }
}

/// Moves a task to its next state after a failed attempt: a retry with backoff, or its end.
pub(crate) fn fail(
    task: &mut Task,
    class: FailureClass,
    reason: &str,
    retry: Retry,
    now: Timestamp,
) -> (Settled, Change) {
    let reason = reason.to_owned();
    match task.next_attempt_at(class, retry, now) {
        Some(at) => {
            task.lifecycle = Lifecycle::ready_or_delayed(at, Some(class), now);
            (Settled::RetryAt(at), Change::RetryScheduled { class, reason, at })
        }
        None => {
            task.lifecycle = Lifecycle::Failed { at: now, class, reason: reason.clone() };
            (Settled::Failed, Change::Failed { class, reason })
        }
    }
}
