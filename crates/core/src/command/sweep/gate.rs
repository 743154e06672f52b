use crate::command::sweep::Due;
use crate::gate::Gate;
use crate::primitive::{open_gate, reopen};
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Due for Gate {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, _: &mut World) {}

    /// Lets through what may run since time has passed, or wakes those who wait for it; a session
    /// whose owner was idle for too long is free.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        match self.gate_key() {
            Some(key) => open_gate(world, &self.tenant, &key),
            None => reopen(world, self.clone()),
        }
    }
}
