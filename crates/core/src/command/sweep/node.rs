use crate::command::sweep::Sweepable;
use crate::node::Node;
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Sweepable for Node {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.due_at)
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes a node that missed its heartbeats.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        world.remove(&Self::key_of(&self.id));
        Ok(())
    }
}
