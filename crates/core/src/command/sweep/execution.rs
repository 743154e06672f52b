use crate::command::sweep::Sweepable;
use crate::execution::Execution;
use crate::primitive::delete_execution;
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// How many rows of a history are deleted at once.
const PAGE: u32 = 256;

impl Sweepable for Execution {
    const MAX_PER_SWEEP: usize = 4;

    fn due_at(&self) -> Option<Timestamp> {
        Some(self.due_at)
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes an execution at the end of its retention, page by page.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        let mut budget = PAGE;
        delete_execution(world, self, &mut budget);
        Ok(())
    }
}
