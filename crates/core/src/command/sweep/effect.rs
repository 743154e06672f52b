use crate::command::sweep::Sweepable;
use crate::effect::Effect;
use crate::record::{Record, StoredRecord};
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Sweepable for Effect {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes the effect of a request at the end of its retention.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        world.drop_payloads(self.result_key());
        world.remove(&Self::row_key(self.key()));
        Ok(())
    }
}
