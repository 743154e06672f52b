use crate::event::{Change, Event, LeaseLoss};
use crate::primitive::{are_related_records_readable, end_lease, fail, transition_to};
use crate::task::{FailureClass, Lease, Lifecycle, Readiness, Retry, Task, TaskKey};
use crate::world::{Halt, World, unless_quarantined};

/// Ends a lease that has not expired, because its worker is dead or does not hold it. Returns
/// false, and leaves the lease, if a record that would change with it is unreadable.
pub(crate) fn lose_lease(
    world: &mut World,
    current: &Task,
    cause: LeaseLoss,
) -> Result<bool, Halt> {
    let Lifecycle::Active(lease) = &current.lifecycle else { return Ok(false) };
    if !are_related_records_readable(world, current)? {
        return Ok(false);
    }
    let mut task = current.clone();
    end_lease(world, current)?;
    clear_sticky_of_parent(world, current, lease)?;
    let change = record_loss(world, &mut task, lease, cause);
    world.emit(Event::of_task(&task, world.now(), change));
    transition_to(world, task)?;
    Ok(true)
}

/// Clears the sticky assignment of the workflow whose step was leased: its worker is dead, or does
/// not know of the lease, and may have lost the workflow's cached state.
pub(crate) fn clear_sticky_of_parent(
    world: &mut World,
    step: &Task,
    lease: &Lease,
) -> Result<(), Halt> {
    let Some(parent) = step.parent.as_ref().filter(|_| step.step.is_some()) else { return Ok(()) };
    let parent = world.get::<Task>(&TaskKey::new(&step.tenant, parent).row_key());
    let Some(parent) = unless_quarantined(parent)?.flatten() else { return Ok(()) };
    if parent.lifecycle.ended_at().is_some() {
        return Ok(());
    }
    let mut workflow = parent.workflow.clone();
    let sticky = workflow.as_mut().map(|workflow| &mut workflow.sticky);
    if let Some(sticky) =
        sticky.filter(|sticky| matches!(sticky, Some(s) if s.worker == lease.worker))
    {
        *sticky = None;
        world.put::<Task>(Task { workflow, ..(*parent).clone() });
    }
    Ok(())
}

/// Ends a lease that its holder did not settle: as a timeout if the attempt took too long, else as
/// a lost lease. A begun attempt counts; one that had not begun does not.
pub(crate) fn record_loss(
    world: &mut World,
    task: &mut Task,
    lease: &Lease,
    cause: LeaseLoss,
) -> Change {
    let now = world.now();
    let timeout_at = lease.attempt.as_ref().and_then(|attempt| attempt.timeout_at);
    if timeout_at.is_some_and(|timeout_at| timeout_at <= now) {
        let reason = "the attempt timed out";
        return fail(task, FailureClass::Timeout, reason, Retry::Policy, now).1;
    }
    task.lost_leases += 1;
    // The attempt of a workflow is its whole execution, which the next turn continues.
    let paused = lease
        .attempt
        .as_ref()
        .filter(|_| task.workflow.is_some())
        .map(|attempt| attempt.to_suspended(now));
    if let Some(workflow) = &mut task.workflow {
        workflow.sticky = None;
    }
    let failure = if paused.is_none() && !task.attempts_left() {
        Some("the lease of the last attempt expired".to_owned())
    } else if task.lost_leases > task.policy.max_lost_leases {
        Some(lost_leases_reason(task))
    } else {
        None
    };
    match failure {
        Some(reason) => fail(task, FailureClass::Crash, &reason, Retry::Never, now).1,
        None => {
            task.lifecycle = Lifecycle::Waiting(Readiness {
                ready_at: now,
                lost_epoch: Some(task.epoch),
                suspended_attempt: paused,
            });
            Change::LeaseLost { epoch: task.epoch, lost_leases: task.lost_leases, cause }
        }
    }
}

/// The failure reason of a task that lost too many leases. Turns count from zero, as the rows of a
/// history do.
fn lost_leases_reason(task: &Task) -> String {
    match &task.workflow {
        Some(workflow) => {
            let (turn, times) = (workflow.turns, task.lost_leases);
            format!("turn {turn} was claimed {times} times and never committed")
        }
        None => "too many leases expired".to_owned(),
    }
}
