use crate::admission::{Admission, Produced};
use crate::digest::Digest;
use crate::name::{IdempotencyKey, Tenant};
use crate::rejection::Rejection;
use crate::world::{Halt, World};

/// A request for an idempotency key.
pub(crate) struct Reservation<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) scope: &'a str,
    pub(crate) key: &'a IdempotencyKey,
    pub(crate) fingerprint: Digest,
    pub(crate) window_ms: u64,
    /// What this request produces, if it is the first.
    pub(crate) produced: Produced,
}

pub(crate) enum Reserved {
    /// This request is the first.
    First,
    /// An identical request came first, and produced this.
    Before(Produced),
}

/// Inserts the key if absent. The same key with a different fingerprint is a conflict. The window
/// counts from the first request and repeats do not extend it.
pub(crate) fn reserve(world: &mut World, wish: Reservation<'_>) -> Result<Reserved, Halt> {
    let known = world.get::<Admission>(&Admission::key_of(wish.tenant, wish.scope, wish.key))?;
    let now = world.now();
    if let Some(known) = known.filter(|known| now < known.expires_at) {
        if known.fingerprint != wish.fingerprint {
            return Err(Rejection::Conflict.into());
        }
        return Ok(Reserved::Before(known.produced.clone()));
    }
    world.put::<Admission>(Admission {
        tenant: wish.tenant.clone(),
        scope: wish.scope.to_owned(),
        key: wish.key.clone(),
        fingerprint: wish.fingerprint,
        produced: wish.produced,
        task_created_at: None,
        expires_at: now.plus_ms(wish.window_ms),
        request: None,
    });
    Ok(Reserved::First)
}
