use crate::command::{Outcome, Transition};
use crate::digest::Digest;
use crate::event::{Change, Event};
use crate::primitive::place::{leave, place};
use crate::primitive::{empty_handed, hold, prefetch_report};
use crate::rejection::Rejection;
use crate::task::{FailureClass, Fence, Lifecycle, Retry, Settle, Settled, Task};
use crate::time::Timestamp;
use crate::world::World;

/// Whether a settle may come after its lease was swept up, where the task's policy allows it.
/// Giving a task back that has gone back already may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    IfAllowed,
    Never,
}

/// Ends a lease by its holder, once. The same settle again gets the same answer and does nothing;
/// a different one under the same fence is refused.
pub(crate) fn settle(
    world: &mut World,
    fence: &Fence,
    digest: Digest,
    late: Late,
    next: impl FnOnce(&mut World, &mut Task, Timestamp) -> (Settled, Change),
) -> Transition {
    let now = world.now();
    let known = hold::task(world, &fence.task)?;
    if let Some(answer) = answered(&known, fence.epoch, digest)? {
        return Ok(Outcome::Settled(answer));
    }
    if late == Late::Never || !hold::was_lost_unraced(&known, fence.epoch) {
        hold::lease(&known, fence.epoch, now)?;
    }
    if known.step.is_some() {
        prefetch_report(world, &known);
    }
    match late {
        Late::IfAllowed => leave(world, &known)?,
        // What is given back is as if it had not been taken, and so is what came with it.
        Late::Never => leave(world, &empty_handed(&known))?,
    }
    let mut task = (*known).clone();
    let (answer, change) = next(world, &mut task, now);
    task.last_settle = Some(Settle { epoch: fence.epoch, digest, answer: answer.clone() });
    world.emit(Event::of_task(&task, now, change));
    place(world, task)?;
    Ok(Outcome::Settled(answer))
}

/// What the same settle came to before; none if this lease was not settled yet.
pub(crate) fn answered(
    task: &Task,
    epoch: u64,
    digest: Digest,
) -> Result<Option<Settled>, Rejection> {
    match task.last_settle.as_ref().filter(|last| last.epoch == epoch) {
        Some(last) if last.digest != digest => Err(Rejection::SettledOtherwise),
        last => Ok(last.map(|last| last.answer.clone())),
    }
}

/// Moves a task on after its attempt failed: to the next try, or to its end.
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
            task.lifecycle = Lifecycle::resting(at, Some(class), now);
            (Settled::RetryAt(at), Change::RetryScheduled { class, reason, at })
        }
        None => {
            task.lifecycle = Lifecycle::Failed { at: now, class, reason: reason.clone() };
            (Settled::Failed, Change::Failed { class, reason })
        }
    }
}
