use crate::task::Task;
use crate::world::{Halt, World};

/// Tells the parent of a task that it has ended, and its children that nobody waits for them.
pub(super) fn ended(_: &mut World, _: &Task) -> Result<(), Halt> {
    Ok(())
}
