use crate::command::{Outcome, Transition};
use crate::limits;
use crate::name::{Tenant, WorkerId};
use crate::primitive::release_sessions_of;
use crate::worker::Worker;
use crate::world::World;

/// How many sessions are released at once. The others are free when their idle time has passed.
const MAX_RELEASED_SESSIONS: usize = 256;

/// Deregisters a worker that is about to stop. Its leases stay until they expire; its sessions are
/// released. Does nothing if it is not registered.
#[derive(Clone, Debug)]
pub struct DeregisterWorker {
    pub tenant: Tenant,
    pub id: WorkerId,
}

impl DeregisterWorker {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::WORKER.check(self.id.as_str())?;
        let key = Worker::key_of(&self.tenant, &self.id);
        if world.get::<Worker>(&key)?.is_some() {
            world.remove(&key);
            release_sessions_of(world, &self.tenant, &self.id, MAX_RELEASED_SESSIONS)?;
        }
        Ok(Outcome::WorkerDeregistered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_worker;

    #[test]
    fn table() {
        check_worker(
            "
            absent     |          | absent           | retired   |
            registered |          | absent           | retired   |
            registered | id=      | seen +0 since +0 | ! invalid |
            registered | tenant=  | seen +0 since +0 | ! invalid |
            registered | id=other | seen +0 since +0 | retired   |
            late       |          | absent           | retired   |
            suspect    |          | absent           | retired   |
            missed     |          | absent           | retired   |
            silent     |          | absent           | retired   |
            dying      |          | absent           | retired   |
            retired    |          | absent           | retired   |
            dead       |          | absent           | retired   |
            ",
            |args| DeregisterWorker {
                tenant: args.text("tenant", "default").into(),
                id: args.text("id", "w").into(),
            },
        );
    }
}
