use crate::admission::{Admission, Produced};
use crate::digest::Digest;
use crate::name::{IdempotencyKey, Tenant};
use crate::rejection::Rejection;
use crate::world::{Halt, World};

/// A request for an idempotency key.
pub(crate) struct KeyRequest<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) scope: &'a str,
    pub(crate) key: &'a IdempotencyKey,
    pub(crate) fingerprint: Digest,
    pub(crate) window_ms: u64,
    /// What this request produces, if it is the first.
    pub(crate) produced: Produced,
}

pub(crate) enum KeyReservation {
    /// This request is the first.
    New,
    /// An identical request came first, and produced this.
    Existing(Produced),
}

/// Inserts the key if absent. The same key with a different fingerprint is a conflict. The window
/// counts from the first request and repeats do not extend it.
pub(crate) fn reserve_key(
    world: &mut World,
    request: KeyRequest<'_>,
) -> Result<KeyReservation, Halt> {
    let existing =
        world.get::<Admission>(&Admission::key_of(request.tenant, request.scope, request.key))?;
    let now = world.now();
    if let Some(existing) = existing.filter(|existing| now < existing.expires_at) {
        if existing.fingerprint != request.fingerprint {
            return Err(Rejection::Conflict.into());
        }
        return Ok(KeyReservation::Existing(existing.produced.clone()));
    }
    world.put::<Admission>(Admission {
        tenant: request.tenant.clone(),
        scope: request.scope.to_owned(),
        key: request.key.clone(),
        fingerprint: request.fingerprint,
        produced: request.produced,
        task_created_at: None,
        expires_at: now.plus_ms(request.window_ms),
        request: None,
    });
    Ok(KeyReservation::New)
}
