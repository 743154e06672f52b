use crate::command::{Outcome, Transition};
use crate::gate::{Gate, GateKey, Owner};
use crate::limits;
use crate::name::Tenant;
use crate::primitive::open_gate;
use crate::world::World;

/// Takes a session from the worker that owns it. While something of it runs there it stays, and is
/// free with the end of that.
#[derive(Clone, Debug)]
pub struct ReleaseSession {
    pub tenant: Tenant,
    pub session: String,
}

impl ReleaseSession {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        let key = GateKey::Session(self.session.clone());
        key.check()?;
        let known = world.get::<Gate>(&key.row_key(&self.tenant))?;
        let Some(gate) = known else { return Ok(Outcome::SessionReleased { running: 0 }) };
        let running = gate.running;
        if let Some(owner) = &gate.owner {
            let until = owner.until.min(world.now());
            let owner = Some(Owner { until, idle_ms: 0, ..owner.clone() });
            world.put::<Gate>(Gate { owner, ..(*gate).clone() });
            open_gate(world, &self.tenant, &key)?;
        }
        Ok(Outcome::SessionReleased { running })
    }
}
