use crate::admission::Admission;
use crate::command::sweep::Due;
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Due for Admission {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.expires_at)
    }

    fn prefetch(&self, _: &mut World) {}

    /// Forgets a key whose window is over.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        world.remove(&Self::key_of(&self.tenant, &self.scope, &self.key));
        Ok(())
    }
}
