use crate::command::sweep::Due;
use crate::effect::Effect;
use crate::record::{Filed, Record};
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Due for Effect {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes the effect of a request at the end of its retention.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        world.drop_payloads(self.answer_key());
        world.remove(&Self::row_key(self.key()));
        Ok(())
    }
}
