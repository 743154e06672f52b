use crate::event::{Change, Event};
use crate::primitive::{leave, place};
use crate::task::{Lifecycle, Task};
use crate::world::{Halt, World};

/// Ends a task whose deadline has passed, wherever it stands.
pub(crate) fn expire(world: &mut World, task: &Task) -> Result<(), Halt> {
    let now = world.now();
    leave(world, task)?;
    world.emit(Event::of_task(task, now, Change::Expired));
    place(world, Task { lifecycle: Lifecycle::Expired { at: now }, ..task.clone() })
}
