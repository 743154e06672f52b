use crate::command::sweep::Due;
use crate::gate::Gate;
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Due for Gate {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, _: &mut World) {}

    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        world.put::<Self>(Self { due_at: None, ..self.clone() });
        Ok(())
    }
}
