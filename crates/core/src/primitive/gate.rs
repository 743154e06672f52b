use crate::task::Task;
use crate::world::{Halt, World};

/// Moves a task with a gate from where it stood to where it is to stand: a task that could run is
/// let through, kept for the owner of its session, or put behind the gate; one that leaves room
/// lets the next one through.
pub(super) fn pass(_: &mut World, _: Option<&Task>, _: &mut Task) -> Result<(), Halt> {
    Ok(())
}
