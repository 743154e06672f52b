use crate::admission::{Admission, Produced};
use crate::digest::Digester;
use crate::limiter::Limiter;
use crate::limits;
use crate::name::{IdempotencyKey, Tenant};
use crate::primitive::{Reservation, Reserved, reserve};
use crate::rate::{self, Rate};
use crate::rejection::{Problem, Rejection};
use crate::request::REQUESTS;
use crate::world::{Halt, World};

/// Units to take from a rate limiter, once per key and window.
pub(crate) struct Spending<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) limiter: &'a str,
    pub(crate) key: &'a IdempotencyKey,
    pub(crate) units: u32,
    pub(crate) rate: Rate,
}

impl Spending<'_> {
    fn scope(&self) -> String {
        format!("spend/{}", self.limiter)
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        limits::LIMITER.check(self.limiter)?;
        limits::IDEMPOTENCY_KEY.check(self.key.reveal())?;
        let field = limits::LIMITER.field;
        if self.limiter.starts_with(REQUESTS) {
            return Err(Rejection::Invalid { field, problem: Problem::OfTheEngine });
        }
        self.rate.check()?;
        limits::UNITS.check(self.units)?;
        // More units than the limit are never available, so a retry could not succeed.
        let (field, most) = (limits::UNITS.field, self.rate.starts);
        let problem = Problem::OutOfRange { min: limits::UNITS.min, max: most.into() };
        if self.units > most { Err(Rejection::Invalid { field, problem }) } else { Ok(()) }
    }

    /// Prefetches all its records, so that several spendings need one load.
    pub(crate) fn prefetch(&self, world: &mut World) {
        world.prefetch(Admission::key_of(self.tenant, &self.scope(), self.key));
        world.prefetch(Limiter::key_of(self.tenant, self.limiter));
    }
}

/// Takes units from a rate limiter, or rejects with the time to retry. A rejection undoes the whole
/// command.
pub(crate) fn spend(world: &mut World, wish: &Spending<'_>) -> Result<(), Halt> {
    wish.prefetch(world);
    let now = world.now();
    let reservation = Reservation {
        tenant: wish.tenant,
        scope: &wish.scope(),
        key: wish.key,
        fingerprint: Digester::new("spend").number(wish.units.into()).finish(),
        window_ms: now.ms_until(wish.rate.counts_until(now)),
        produced: Produced::Units(wish.units),
    };
    if let Reserved::Before(_) = reserve(world, reservation)? {
        return Ok(());
    }
    let known = world.get::<Limiter>(&Limiter::key_of(wish.tenant, wish.limiter))?;
    let mut limiter = known.map_or_else(
        || Limiter {
            tenant: wish.tenant.clone(),
            name: wish.limiter.to_owned(),
            rate: wish.rate,
            spent: Vec::new(),
        },
        |known| (*known).clone(),
    );
    limiter.rate = wish.rate;
    let others = wish.units.saturating_sub(1);
    if wish.units > limiter.left(now) {
        let opens_at = rate::opens_at(&limiter.spent, wish.rate, others, now);
        let retry_after_ms = opens_at.map_or(wish.rate.window_ms, |at| now.ms_until(at).max(1));
        return Err(Rejection::RateLimited { retry_after_ms }.into());
    }
    rate::charge(&mut limiter.spent, Some(wish.rate), wish.units, now);
    world.put::<Limiter>(limiter);
    Ok(())
}
