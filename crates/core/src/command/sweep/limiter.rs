use crate::command::sweep::Sweepable;
use crate::limiter::Limiter;
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Sweepable for Limiter {
    fn due_at(&self) -> Option<Timestamp> {
        self.empty_at()
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes a rate limiter without counted units.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        world.remove(&Self::key_of(&self.tenant, &self.name));
        Ok(())
    }
}
