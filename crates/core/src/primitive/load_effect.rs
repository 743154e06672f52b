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

/// An effect that the owner may execute, and its record.
pub(crate) struct EffectAccess {
    pub(crate) effect: Option<Arc<Effect>>,
    /// When its record is deleted; none if that is with its task.
    pub(crate) due_at: Option<Timestamp>,
    /// The task it belongs to.
    pub(crate) task: Option<Arc<Task>>,
}

/// Loads an effect. Rejects callers that do not hold its task or request.
pub(crate) fn load_effect(
    world: &mut World,
    owner: &EffectOwner,
    provider: &str,
    name: &str,
) -> Result<EffectAccess, Halt> {
    limits::PROVIDER.check(provider)?;
    limits::EFFECT.check(name)?;
    let key = Effect::key_of(owner.tenant(), &owner.key(), provider, name);
    world.prefetch(key.clone());
    let (task, due_at) = match owner {
        EffectOwner::Task(fence) => {
            let (task, lease) = require_lease(world, fence)?;
            if lease.attempt.is_none() {
                return Err(Rejection::NotBegun.into());
            }
            (Some(task), None)
        }
        EffectOwner::Request { request, owner: name } => {
            request.check()?;
            limits::OWNER.check(name)?;
            let now = world.now();
            let admission = world.get::<Admission>(&request.row_key())?;
            let own = admission.filter(|admission| admission.is_owned_by(name));
            let in_flight = own.filter(|own| own.request(now) == Some(RequestState::InFlight));
            let Some(own) = in_flight else { return Err(Rejection::RequestLost.into()) };
            (None, own.request.as_ref().map(|request| request.tombstone_until))
        }
    };
    Ok(EffectAccess { effect: world.get::<Effect>(&key)?, due_at, task })
}
