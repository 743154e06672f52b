use crate::command::sweep::Sweepable;
use crate::execution::Execution;
use crate::primitive::forget_execution;
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// How many rows of a history are deleted at once.
const PAGE: u32 = 256;

impl Sweepable for Execution {
    const AT_ONCE: usize = 4;

    fn due_at(&self) -> Option<Timestamp> {
        Some(self.due_at)
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes an execution at the end of its retention, page by page.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        let mut room = PAGE;
        forget_execution(world, self, &mut room);
        Ok(())
    }
}
