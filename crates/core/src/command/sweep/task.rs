use crate::children::Children;
use crate::command::delete_task::reap;
use crate::command::sweep::Sweepable;
use crate::command::sweep::suspension::time_out;
use crate::event::{Change, Event, LeaseLoss};
use crate::primitive::{
    PURGE_PAGE, are_neighbours_readable, end_lease, expire, is_done_with, prefetch_family,
    prefetch_neighbours, prefetch_purge, record_loss, tell_holder, transition_to, unstick,
};
use crate::task::{Lifecycle, Task};
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// When to re-check a task whose lane this version cannot read.
pub(super) const POSTPONED_MS: u64 = 60_000;

/// When to re-check an ended task that is retained for its parent or its children.
const KEPT_MS: u64 = 3_600_000;

impl Sweepable for Task {
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

/// Does what is due, or sets the next due time if the record has changed.
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
    end_lease(world, known)?;
    let mut task = known.clone();
    let change = match &known.lifecycle {
        Lifecycle::Active(lease) => {
            if now < lease.expires_at {
                // The attempt timed out. Its worker is alive, and has to stop.
                tell_holder(world, known);
            } else {
                unstick(world, known, lease)?;
            }
            record_loss(world, &mut task, lease, LeaseLoss::Expired)
        }
        Lifecycle::Granted { readiness: turn, worker, .. } => {
            if let Some(workflow) = &mut task.workflow {
                workflow.sticky = None;
            }
            task.lifecycle = Lifecycle::Waiting(turn.clone());
            Change::GrantExpired { worker: worker.clone() }
        }
        Lifecycle::Delayed { suspended_attempt: Some(paused), .. } => {
            task.lifecycle = Lifecycle::resumed(paused.clone(), now);
            Change::Promoted
        }
        _ => {
            task.lifecycle = Lifecycle::waiting(now);
            Change::Promoted
        }
    };
    world.emit(Event::of_task(&task, now, change));
    transition_to(world, task)
}
