use crate::command::sweep::Due;
use crate::time::Timestamp;
use crate::worker::Worker;
use crate::world::{Halt, World};

impl Due for Worker {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.due_at)
    }

    fn prefetch(&self, _: &mut World) {}

    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        world.remove(&Self::key_of(&self.tenant, &self.id));
        Ok(())
    }
}
