//! Rate limiters: never more units per window than allowed, and one charge per idempotency key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_core::command::{Charge, Spend};
use windlass_core::{
    Admission, Command, Limiter, Outcome, Produced, Rate, Rejection, RowKey, Table, Timestamp,
    Value,
};
use windlass_store::MemoryStore;

use crate::model::facts::Track;
use crate::model::idempotent_request::key_of;
use crate::model::outcome::Submission;
use crate::model::record::one;
use crate::model::state::Model;
use crate::requests::{GROWTH, counted_as, limiter_of, rate_of};
use crate::violation::{Breach, Kind, breach};

/// The units charged under a key, and the expiry of that key.
type Paid = Option<(u32, Timestamp)>;

#[derive(Debug, Default)]
pub(super) struct Limiters {
    keys: BTreeMap<(String, String), Track<Paid>>,
    charged: BTreeMap<String, Vec<(Timestamp, u32)>>,
    /// The same, with all expired charges.
    ever: BTreeMap<String, Vec<(Timestamp, u32)>>,
    wanted: BTreeSet<(String, String, u32)>,
    /// Each limiter as last written.
    stored: BTreeMap<String, Option<Arc<Limiter>>>,
}

fn rate(limiter: &str) -> Rate {
    rate_of(limiter).unwrap_or(GROWTH)
}

/// How much longer than the window a charge may count.
fn slack_ms(rate: Rate) -> u64 {
    rate.window_ms / 32 + 1
}

/// The units that count, if each charge counts for `for_ms`.
fn count(charged: Option<&Vec<(Timestamp, u32)>>, for_ms: u64, now: Timestamp) -> u32 {
    let charged = charged.into_iter().flatten();
    charged.filter(|(at, _)| now < at.plus_ms(for_ms)).map(|(_, units)| units).sum()
}

/// The limiter that a key was charged to.
fn limiter_in(row: &RowKey) -> String {
    let scope = row.values.iter().find_map(|value| match value {
        Value::Text(text) => text.strip_prefix("spend/"),
        _ => None,
    });
    scope.unwrap_or_default().to_owned()
}

impl Model {
    pub(super) fn spend_submitted(&mut self, spend: &Spend) {
        for Charge { limiter, units, .. } in &spend.charges {
            let key = spend.key.expose_secret().to_owned();
            self.limiters.wanted.insert((limiter.clone(), key, *units));
        }
    }

    fn paid(&self, limiter: &str, key: &str) -> Paid {
        let track = self.limiters.keys.get(&(limiter.to_owned(), key.to_owned()));
        track.and_then(|track| *track.last())
    }

    /// The units that count, if a charge counts for `more_ms` longer than its window.
    fn counted(&self, limiter: &str, more_ms: u64, now: Timestamp) -> u32 {
        let charged = self.limiters.charged.get(limiter);
        count(charged, rate(limiter).window_ms + more_ms, now)
    }

    /// Judges a commit that wrote or removed the record of a charge under a key.
    pub(super) fn compare_spend(
        &mut self,
        memory: &MemoryStore,
        row: &RowKey,
    ) -> Result<(), Breach> {
        let (limiter, key) = (limiter_in(row), key_of(row));
        let key = counted_as(&key).map_or(key, ToOwned::to_owned);
        let was = self.paid(&limiter, &key);
        let is = one::<Admission>(memory, row.clone());
        let units = |admission: &Admission| match admission.produced {
            Produced::Units(units) => units,
            _ => 0,
        };
        let is = is.map(|admission| (units(&admission), admission.expires_at));
        if was == is {
            return Ok(());
        }
        if was.is_some_and(|(_, expires_at)| self.now < expires_at) {
            return breach(Kind::Limiter, format!("{key} at {limiter}: {is:?}, was {was:?}"));
        }
        if let Some((units, expires_at)) = is {
            let least = self.now.plus_ms(rate(&limiter).window_ms);
            let most = least.plus_ms(slack_ms(rate(&limiter)));
            if expires_at < least || expires_at > most {
                return breach(Kind::Limiter, format!("{key} has the wrong expiry {expires_at}"));
            }
            self.charge(&limiter, &key, units)?;
        }
        let (moment, name) = (self.moment, (limiter, key));
        let track = self.limiters.keys.entry(name).or_insert_with(|| Track::new(None));
        track.push(moment, is);
        Ok(())
    }

    fn charge(&mut self, limiter: &str, key: &str, units: u32) -> Result<(), Breach> {
        let wanted = (limiter.to_owned(), key.to_owned(), units);
        let grows = limiter == limiter_of(key) && units == 1;
        if !grows && !self.limiters.wanted.contains(&wanted) {
            return breach(Kind::Limiter, format!("no caller requested {wanted:?}"));
        }
        // A request that the same commit released leaves only its charge.
        let accepted = self.stage(key).is_some_and(|stage| stage.accepted_at == self.now);
        if grows && !accepted && self.stage(key).is_some() {
            return breach(Kind::Limiter, format!("{key} was charged and not accepted"));
        }
        let (now, allowed) = (self.now, rate(limiter));
        let charged = self.limiters.charged.entry(limiter.to_owned()).or_default();
        let last = charged.last().map_or(now, |(at, _)| now.max(*at));
        charged.push((last, units));
        self.limiters.ever.entry(limiter.to_owned()).or_default().push((last, units));
        let counted = self.counted(limiter, 0, now);
        if counted > allowed.limit {
            return breach(Kind::Limiter, format!("{counted} of {allowed:?} at {limiter}"));
        }
        Ok(())
    }

    /// Checks that every admitted request was counted.
    pub(super) fn check_growth(&mut self) -> Result<(), Breach> {
        for key in std::mem::take(&mut self.requests.fresh) {
            let paid = self.paid(&limiter_of(&key), &key);
            if paid.is_none_or(|(_, expires_at)| expires_at <= self.now) {
                return breach(Kind::Limiter, format!("{key} was accepted and not counted"));
            }
        }
        Ok(())
    }

    /// Checks that no charge is left.
    pub(super) fn check_spent(&self, memory: &MemoryStore) -> Result<(), Breach> {
        let mut keys = self.limiters.keys.iter();
        if let Some((key, _)) = keys.find(|(_, track)| track.last().is_some()) {
            return breach(Kind::Limiter, format!("{key:?} is never deleted"));
        }
        match memory.snapshot().rows().find(|row| row.key.table == Table::Limiter) {
            Some(row) => breach(Kind::Limiter, format!("{:?} is never deleted", row.key)),
            None => Ok(()),
        }
    }

    /// Compares the count of a limiter.
    pub(super) fn compare_limiter(
        &mut self,
        memory: &MemoryStore,
        row: &RowKey,
    ) -> Result<(), Breach> {
        let (name, now) = (key_of(row), self.now);
        let stored = one::<Limiter>(memory, row.clone());
        // A failed commit changes nothing, and its time may be long past.
        if self.limiters.stored.insert(name.clone(), stored.clone()) == Some(stored.clone()) {
            return Ok(());
        }
        let spent = stored.as_ref().map_or(0, |stored| stored.rate.limit - stored.left(now));
        let least = self.counted(&name, 0, now);
        let most = self.counted(&name, slack_ms(rate(&name)), now);
        if spent < least || spent > most {
            let what = format!("{spent} of {name} at {now}, expected {least} to {most}");
            return breach(Kind::Limiter, what);
        }
        // A batch with an earlier time that commits later does not find expired charges.
        let most_ms = rate(&name).window_ms + slack_ms(rate(&name));
        if let Some(charged) = self.limiters.charged.get_mut(&name) {
            charged.retain(|(at, _)| now < at.plus_ms(most_ms));
        }
        if stored.is_none() {
            self.limiters.charged.remove(&name);
        }
        Ok(())
    }

    /// Whether too few units may have been left since a time.
    pub(super) fn may_be_limited(
        &self,
        limiter: &str,
        units: u32,
        allowed: Rate,
        since: Timestamp,
    ) -> bool {
        let charged = self.limiters.ever.get(limiter);
        count(charged, allowed.window_ms + slack_ms(allowed), since) + units > allowed.limit
    }

    fn paid_since(&self, submission: &Submission<'_>, limiter: &str, key: &str) -> Vec<Paid> {
        match self.limiters.keys.get(&(limiter.to_owned(), key.to_owned())) {
            Some(track) => track.since(submission.moment).iter().map(|(_, paid)| *paid).collect(),
            None => vec![None],
        }
    }

    pub(super) fn check_spend_outcome(
        &self,
        submission: &Submission<'_>,
        outcome: &Outcome,
    ) -> Option<Result<(), Breach>> {
        let Command::Spend(spend) = submission.command else { return None };
        let key = spend.key.expose_secret();
        let paid = |charge: &Charge| {
            let paid = self.paid_since(submission, &charge.limiter, key);
            paid.into_iter().flatten().any(|(units, _)| units == charge.units)
        };
        let all = *outcome == Outcome::Spent && spend.charges.iter().all(paid);
        Some(if all { Ok(()) } else { breach(Kind::Limiter, "the charges were not made") })
    }

    pub(super) fn may_reject_spend(
        &self,
        submission: &Submission<'_>,
        rejection: &Rejection,
    ) -> Option<bool> {
        let Command::Spend(spend) = submission.command else { return None };
        let key = spend.key.expose_secret();
        Some(spend.charges.iter().any(|Charge { limiter, units, rate }| {
            let paid = self.paid_since(submission, limiter, key);
            match rejection {
                Rejection::Conflict => paid.into_iter().flatten().any(|paid| paid.0 != *units),
                Rejection::RateLimited { .. } => {
                    let unpaid =
                        |paid: &Paid| paid.is_none_or(|(_, expires_at)| expires_at <= self.latest);
                    paid.iter().any(unpaid)
                        && self.may_be_limited(limiter, *units, *rate, submission.at)
                }
                _ => false,
            }
        }))
    }
}
