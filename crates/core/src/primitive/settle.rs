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
pub(crate) enum Late {
    IfAllowed,
    Never,
}

/// Ends a lease by its holder, once. A repeat returns the stored result and changes nothing; a
/// different settle under the same fence is rejected.
pub(crate) fn settle(
    world: &mut World,
    fence: &Fence,
    digest: Digest,
    late: Late,
    next: impl FnOnce(&mut World, &mut Task, Timestamp) -> (Settled, Change),
) -> Transition {
    let now = world.now();
    let known = lease::require_task(world, &fence.task)?;
    if let Some(answer) = answered(&known, fence.epoch, digest)? {
        return Ok(Outcome::Settled(answer));
    }
    if late == Late::Never || !lease::lost_without_new_claim(&known, fence.epoch) {
        lease::lease(&known, fence.epoch, now)?;
    }
    if known.step.is_some() {
        prefetch_step_completion(world, &known);
    }
    match late {
        Late::IfAllowed => end_lease(world, &known)?,
        // A lease that ends without a result does not count as a delivery of its messages.
        Late::Never => end_lease(world, &without_in_flight(&known))?,
    }
    let mut task = (*known).clone();
    let (answer, change) = next(world, &mut task, now);
    task.last_settle = Some(Settle { epoch: fence.epoch, digest, result: answer.clone() });
    world.emit(Event::of_task(&task, now, change));
    transition_to(world, task)?;
    Ok(Outcome::Settled(answer))
}

/// The stored result of an identical settle; none if this lease was not settled yet.
pub(crate) fn answered(
    task: &Task,
    epoch: u64,
    digest: Digest,
) -> Result<Option<Settled>, Rejection> {
    match task.last_settle.as_ref().filter(|last| last.epoch == epoch) {
        Some(last) if last.digest != digest => Err(Rejection::SettledOtherwise),
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
    match task.next_try(class, retry, now) {
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
