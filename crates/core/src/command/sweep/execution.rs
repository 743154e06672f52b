use crate::command::sweep::Due;
use crate::execution::Execution;
use crate::record::{Filed, Record};
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// How many rows of a history are forgotten at once.
const PAGE: u32 = 256;

impl Due for Execution {
    const AT_ONCE: usize = 4;

    fn due_at(&self) -> Option<Timestamp> {
        Some(self.due_at)
    }

    fn prefetch(&self, _: &mut World) {}

    /// Forgets an execution whose time is over, page by page.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        let (keys, left) = self.shortened(PAGE);
        world.drop_payloads(keys);
        match left {
            Some(left) => world.put::<Self>(left),
            None => world.remove(&Self::row_key(self.key())),
        }
        Ok(())
    }
}
