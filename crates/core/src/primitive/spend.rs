use crate::admission::{Admission, Produced};
use crate::digest::Digester;
use crate::limiter::Limiter;
use crate::limits;
use crate::name::{IdempotencyKey, Tenant};
use crate::primitive::{KeyRequest, KeyReservation, reserve_key};
use crate::rate::{self, Rate};
use crate::rejection::{Problem, Rejection};
use crate::request::REQUESTS;
use crate::world::{Halt, World};

/// Units to take from a rate limiter, once per key and window.
pub(crate) struct LimiterCharge<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) limiter: &'a str,
    pub(crate) key: &'a IdempotencyKey,
    pub(crate) units: u32,
    pub(crate) rate: Rate,
}

impl LimiterCharge<'_> {
    fn scope(&self) -> String {
        format!("spend/{}", self.limiter)
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        limits::LIMITER.check(self.limiter)?;
        limits::IDEMPOTENCY_KEY.check(self.key.expose_secret())?;
        let field = limits::LIMITER.field;
        if self.limiter.starts_with(REQUESTS) {
            return Err(Rejection::Invalid { field, problem: Problem::Reserved });
        }
        self.rate.check()?;
        limits::UNITS.check(self.units)?;
        // More units than the limit are never available, so a retry could not succeed.
        let (field, most) = (limits::UNITS.field, self.rate.limit);
        let problem = Problem::OutOfRange { min: limits::UNITS.min, max: most.into() };
        if self.units > most { Err(Rejection::Invalid { field, problem }) } else { Ok(()) }
    }

    /// Prefetches all its records, so that several charges need one load.
    pub(crate) fn prefetch(&self, world: &mut World) {
        world.prefetch(Admission::key_of(self.tenant, &self.scope(), self.key));
        world.prefetch(Limiter::key_of(self.tenant, self.limiter));
    }
}

/// Takes units from a rate limiter, or rejects with the time to retry. A rejection undoes the whole
/// command.
pub(crate) fn spend(world: &mut World, charge: &LimiterCharge<'_>) -> Result<(), Halt> {
    charge.prefetch(world);
    let now = world.now();
    let request = KeyRequest {
        tenant: charge.tenant,
        scope: &charge.scope(),
        key: charge.key,
        fingerprint: Digester::new("spend").number(charge.units.into()).finish(),
        window_ms: now.ms_until(charge.rate.counts_until(now)),
        produced: Produced::Units(charge.units),
    };
    if let KeyReservation::Existing(_) = reserve_key(world, request)? {
        return Ok(());
    }
    let existing = world.get::<Limiter>(&Limiter::key_of(charge.tenant, charge.limiter))?;
    let mut limiter = existing.map_or_else(
        || Limiter {
            tenant: charge.tenant.clone(),
            name: charge.limiter.to_owned(),
            rate: charge.rate,
            spent: Vec::new(),
        },
        |existing| (*existing).clone(),
    );
    limiter.rate = charge.rate;
    let others = charge.units.saturating_sub(1);
    if charge.units > limiter.left(now) {
        let retry_at = rate::retry_at(&limiter.spent, charge.rate, others, now);
        let retry_after_ms = retry_at.map_or(charge.rate.window_ms, |at| now.ms_until(at).max(1));
        return Err(Rejection::RateLimited { retry_after_ms }.into());
    }
    rate::charge(&mut limiter.spent, Some(charge.rate), charge.units, now);
    world.put::<Limiter>(limiter);
    Ok(())
}
