use crate::command::sweep::Sweepable;
use crate::keyring::Keyring;
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Sweepable for Keyring {
    fn due_at(&self) -> Option<Timestamp> {
        Self::due_at(self)
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes keys whose grace period has ended.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        let mut keys = self.keys.clone();
        keys.retain(|key| key.verifies(world.now()));
        world.put::<Self>(Self { keys, ..self.clone() });
        Ok(())
    }
}
