use crate::admission::Admission;
use crate::command::sweep::Sweepable;
use crate::request::{Request, RequestState};
use crate::time::Timestamp;
use crate::world::{Halt, World};

impl Sweepable for Admission {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.expires_at)
    }

    fn prefetch(&self, _: &mut World) {}

    /// Deletes an expired key. The key of an answered request is retained for a while without its
    /// response, so that a late repeat does not run the request again.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        match &self.request {
            Some(request) if matches!(request.state, RequestState::Completed { .. }) => {
                world.drop_payloads(self.response_key());
                let expired = Request { state: RequestState::Expired, ..request.clone() };
                let expires_at = request.tombstone_until;
                world.put::<Self>(Self { request: Some(expired), expires_at, ..self.clone() });
            }
            _ => world.remove(&Self::key_of(&self.tenant, &self.scope, &self.key)),
        }
        Ok(())
    }
}
