use crate::command::sweep::Sweepable;
use crate::concurrency_limit::ConcurrencyLimit;
use crate::primitive::{open_gate, wake_starved};
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Sweepable for ConcurrencyLimit {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, _: &mut World) {}

    /// Admits tasks that the rate allows by then, or wakes claims that wait for a quota; releases a
    /// session whose owner was idle for too long.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        match self.limit_key() {
            Some(key) => open_gate(world, &self.tenant, &key),
            None => wake_starved(world, self.clone()),
        }
    }
}
