use std::sync::Arc;

use crate::admission::Admission;
use crate::effect::{Effect, EffectOwner};
use crate::limits;
use crate::primitive::require_lease;
use crate::rejection::Rejection;
use crate::request::RequestState;
use crate::task::Task;
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// An effect that the caller may execute, and its record.
pub(crate) struct Call {
    pub(crate) known: Option<Arc<Effect>>,
    /// When its record is deleted; none if that is with its task.
    pub(crate) due_at: Option<Timestamp>,
    /// The task it belongs to.
    pub(crate) task: Option<Arc<Task>>,
}

/// Loads an effect. Rejects callers that do not hold its task or request.
pub(crate) fn call(
    world: &mut World,
    caller: &EffectOwner,
    provider: &str,
    name: &str,
) -> Result<Call, Halt> {
    limits::PROVIDER.check(provider)?;
    limits::EFFECT.check(name)?;
    let key = Effect::key_of(caller.tenant(), &caller.parent(), provider, name);
    world.prefetch(key.clone());
    let (task, due_at) = match caller {
        EffectOwner::Task(fence) => {
            let (task, lease) = require_lease(world, fence)?;
            if lease.run.is_none() {
                return Err(Rejection::NotBegun.into());
            }
            (Some(task), None)
        }
        EffectOwner::Request { request, owner } => {
            request.check()?;
            limits::OWNER.check(owner)?;
            let now = world.now();
            let known = world.get::<Admission>(&request.row_key())?;
            let own = known.filter(|known| known.is_owned_by(owner));
            let in_flight = own.filter(|own| own.request(now) == Some(RequestState::InFlight));
            let Some(own) = in_flight else { return Err(Rejection::RequestReleased.into()) };
            (None, own.request.as_ref().map(|request| request.tombstone_until))
        }
    };
    Ok(Call { known: world.get::<Effect>(&key)?, due_at, task })
}
