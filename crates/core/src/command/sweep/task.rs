use crate::children::Children;
use crate::command::reap::reap;
use crate::command::sweep::Due;
use crate::command::sweep::suspension::time_out;
use crate::event::{Change, Event};
use crate::primitive::{
    PURGE_PAGE, are_neighbours_readable, expire, fail, is_done_with, leave, place, prefetch_family,
    prefetch_neighbours, prefetch_purge, tell_holder,
};
use crate::task::{FailureClass, Lease, Lifecycle, Retry, Task, TaskKey, Turn};
use crate::time::Timestamp;
use crate::world::{Halt, World, unless_quarantined};

/// When to look again at a task whose lane this version cannot read.
pub(super) const POSTPONED_MS: u64 = 60_000;

/// When to look again at a task that is kept for its family.
const KEPT_MS: u64 = 3_600_000;

impl Due for Task {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, world: &mut World) {
        if self.has_children {
            world.prefetch(Children::key_of(&self.tenant, &self.id));
        }
        if let Some(parent) = &self.parent {
            prefetch_family(world, &self.tenant, parent);
        }
        if self.lifecycle.ended_at().is_some() {
            prefetch_purge(world, self);
        } else {
            prefetch_neighbours(world, self);
        }
    }

    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        sweep(world, self)
    }
}

/// Does what is due, or makes the next appointment when what was due has moved.
fn sweep(world: &mut World, known: &Task) -> Result<(), Halt> {
    let now = world.now();
    if known.next_due().is_none_or(|due_at| now < due_at) {
        world.put::<Task>(Task { due_at: known.next_due(), ..known.clone() });
        return Ok(());
    }
    if !are_neighbours_readable(world, known)? {
        world.put::<Task>(Task { due_at: Some(now.plus_ms(POSTPONED_MS)), ..known.clone() });
        return Ok(());
    }
    if known.lifecycle.ended_at().is_some() {
        if is_done_with(world, known)? {
            return reap(world, known, PURGE_PAGE);
        }
        world.put::<Task>(Task { due_at: Some(now.plus_ms(KEPT_MS)), ..known.clone() });
        return Ok(());
    }
    if known.is_past_deadline(now) {
        return expire(world, known);
    }
    if let Lifecycle::Suspended(suspension) = &known.lifecycle {
        return time_out(world, known, suspension);
    }
    leave(world, known)?;
    let mut task = known.clone();
    let change = match &known.lifecycle {
        Lifecycle::Active(lease) => {
            if now < lease.expires_at {
                // Its attempt took too long. Whoever makes it is alive, and is to stop.
                tell_holder(world, known);
            } else {
                unstick(world, known, lease)?;
            }
            end_lease(world, &mut task, lease)
        }
        Lifecycle::Reserved { turn, worker, .. } => {
            if let Some(workflow) = &mut task.workflow {
                workflow.sticky = None;
            }
            task.lifecycle = Lifecycle::Waiting(turn.clone());
            Change::GrantExpired { worker: worker.clone() }
        }
        Lifecycle::Delayed { paused: Some(paused), .. } => {
            task.lifecycle = Lifecycle::resumed(paused.clone(), now);
            Change::Promoted
        }
        _ => {
            task.lifecycle = Lifecycle::waiting(now);
            Change::Promoted
        }
    };
    world.emit(Event::of_task(&task, now, change));
    place(world, task)
}

/// Ends a lease before its time, because its holder is taken for dead. Says whether it could.
pub(super) fn lose(world: &mut World, known: &Task) -> Result<bool, Halt> {
    let Lifecycle::Active(lease) = &known.lifecycle else { return Ok(false) };
    if !are_neighbours_readable(world, known)? {
        return Ok(false);
    }
    let mut task = known.clone();
    leave(world, known)?;
    unstick(world, known, lease)?;
    let change = end_lease(world, &mut task, lease);
    world.emit(Event::of_task(&task, world.now(), change));
    place(world, task)?;
    Ok(true)
}

/// Whoever loses a step of a workflow is not asked first for its next turn: it is taken for dead,
/// and so is what it had in memory.
fn unstick(world: &mut World, step: &Task, lease: &Lease) -> Result<(), Halt> {
    let Some(parent) = step.parent.as_ref().filter(|_| step.step.is_some()) else { return Ok(()) };
    let parent = world.get::<Task>(&TaskKey::new(&step.tenant, parent).row_key());
    let Some(parent) = unless_quarantined(parent)?.flatten() else { return Ok(()) };
    if parent.lifecycle.ended_at().is_some() {
        return Ok(());
    }
    let mut workflow = parent.workflow.clone();
    let kept_for = workflow.as_mut().map(|workflow| &mut workflow.sticky);
    if let Some(sticky) =
        kept_for.filter(|kept| matches!(kept, Some(s) if s.worker == lease.worker))
    {
        *sticky = None;
        world.put::<Task>(Task { workflow, ..(*parent).clone() });
    }
    Ok(())
}

/// The attempt took too long, or its holder was not heard of in time. A begun attempt is spent;
/// one that had not begun is not.
fn end_lease(world: &mut World, task: &mut Task, lease: &Lease) -> Change {
    let now = world.now();
    let timeout_at = lease.run.as_ref().and_then(|run| run.timeout_at);
    if timeout_at.is_some_and(|timeout_at| timeout_at <= now) {
        let reason = "the attempt took longer than it may";
        return fail(task, FailureClass::Timeout, reason, Retry::Policy, now).1;
    }
    task.reclaims += 1;
    // The attempt of a workflow is its whole execution, which the next turn takes up.
    let paused = lease.run.as_ref().filter(|_| task.workflow.is_some()).map(|run| run.paused(now));
    if let Some(workflow) = &mut task.workflow {
        workflow.sticky = None;
    }
    let spent = if paused.is_none() && !task.attempts_left() {
        Some("the lease of the last attempt ran out".to_owned())
    } else if task.reclaims > task.policy.max_reclaims {
        Some(poison(task))
    } else {
        None
    };
    match spent {
        Some(reason) => fail(task, FailureClass::Crash, &reason, Retry::GiveUp, now).1,
        None => {
            task.lifecycle =
                Lifecycle::Waiting(Turn { ready_at: now, lost: Some(task.epoch), paused });
            Change::LeaseExpired { epoch: task.epoch, reclaims: task.reclaims }
        }
    }
}

/// Why a task is given up that takes its workers down. Turns count from zero, as the rows
/// of a history do.
fn poison(task: &Task) -> String {
    match &task.workflow {
        Some(workflow) => {
            let (turn, times) = (workflow.turns, task.reclaims);
            format!("turn {turn} was taken {times} times and never kept")
        }
        None => "leases ran out too often".to_owned(),
    }
}
