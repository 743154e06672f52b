use crate::event::{Change, Event};
use crate::primitive::{end_lease, notify_holder, transition_to};
use crate::task::{Lifecycle, Task};
use crate::world::{Halt, World};

/// Cancels a task in any open state, and notifies its lease holder.
pub(crate) fn cancel(world: &mut World, task: &Task, reason: &str) -> Result<(), Halt> {
    let (now, reason) = (world.now(), reason.to_owned());
    end_lease(world, task)?;
    notify_holder(world, task);
    world.emit(Event::of_task(task, now, Change::Cancelled { reason: reason.clone() }));
    transition_to(
        world,
        Task { lifecycle: Lifecycle::Cancelled { at: now, reason }, ..task.clone() },
    )
}
