use crate::children::Children;
use crate::command::delete_task::delete_task;
use crate::command::sweep::Sweepable;
use crate::command::sweep::suspension::time_out;
use crate::event::{Change, Event, LeaseLoss};
use crate::primitive::{
    PURGE_PAGE, are_related_records_readable, clear_sticky_of_parent, end_lease, expire,
    is_deletable, notify_holder, prefetch_parent, prefetch_purge, prefetch_related_records,
    record_loss, transition_to,
};
use crate::task::{Lifecycle, Task};
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// When to re-check a task whose lane this version cannot read.
pub(super) const UNREADABLE_RECHECK_MS: u64 = 60_000;

/// When to re-check an ended task that is retained for its parent or its children.
const RETAINED_RECHECK_MS: u64 = 3_600_000;

impl Sweepable for Task {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, world: &mut World) {
        if self.has_children {
            world.prefetch(Children::key_of(&self.tenant, &self.id));
        }
        if let Some(parent) = &self.parent {
            prefetch_parent(world, &self.tenant, parent);
        }
        if self.lifecycle.ended_at().is_some() {
            prefetch_purge(world, self);
        } else {
            prefetch_related_records(world, self);
        }
    }

    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        sweep(world, self)
    }
}

/// Does what is due, or sets the next due time if the record has changed.
fn sweep(world: &mut World, current: &Task) -> Result<(), Halt> {
    let now = world.now();
    if current.next_due().is_none_or(|due_at| now < due_at) {
        world.put::<Task>(Task { due_at: current.next_due(), ..current.clone() });
        return Ok(());
    }
    if !are_related_records_readable(world, current)? {
        world.put::<Task>(Task {
            due_at: Some(now.plus_ms(UNREADABLE_RECHECK_MS)),
            ..current.clone()
        });
        return Ok(());
    }
    if current.lifecycle.ended_at().is_some() {
        if is_deletable(world, current)? {
            return delete_task(world, current, PURGE_PAGE);
        }
        world.put::<Task>(Task {
            due_at: Some(now.plus_ms(RETAINED_RECHECK_MS)),
            ..current.clone()
        });
        return Ok(());
    }
    if current.is_past_deadline(now) {
        return expire(world, current);
    }
    if let Lifecycle::Suspended(suspension) = &current.lifecycle {
        return time_out(world, current, suspension);
    }
    end_lease(world, current)?;
    let mut task = current.clone();
    let change = match &current.lifecycle {
        Lifecycle::Active(lease) => {
            if now < lease.expires_at {
                // The attempt timed out. Its worker is alive, and has to stop.
                notify_holder(world, current);
            } else {
                clear_sticky_of_parent(world, current, lease)?;
            }
            record_loss(world, &mut task, lease, LeaseLoss::Expired)
        }
        Lifecycle::Granted { readiness, worker, .. } => {
            if let Some(workflow) = &mut task.workflow {
                workflow.sticky = None;
            }
            task.lifecycle = Lifecycle::Waiting(readiness.clone());
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
