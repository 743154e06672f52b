use crate::event::{Change, Event};
use crate::primitive::{end_lease, notify_holder, transition_to};
use crate::task::{Lifecycle, Task};
use crate::world::{Halt, Wake, World};

/// Ends a task whose deadline has passed, in any open state.
pub(crate) fn expire(world: &mut World, task: &Task) -> Result<(), Halt> {
    let now = world.now();
    end_lease(world, task)?;
    notify_holder(world, task);
    // A claim may have skipped this task and those behind it.
    if matches!(task.lifecycle, Lifecycle::Waiting { .. }) {
        let (tenant, lane) = (task.tenant.clone(), task.lane.clone());
        world.wake(Wake { tenant, lane, route: Some(task.route.clone()) });
    }
    world.emit(Event::of_task(task, now, Change::Expired));
    transition_to(world, Task { lifecycle: Lifecycle::Expired { at: now }, ..task.clone() })
}
