//! Leases: who claimed them, how long they last, and until when the holder may write.

use std::time::Duration;

use windlass_core::command::Claim;
use windlass_core::{LeaseLoss, LimitKey, TaskId, Timestamp};

use crate::model::facts::{Facts, Hold, Position, State};
use crate::model::log::Step;
use crate::model::outcome::{Fenced, Submission};
use crate::model::state::{ClaimSeen, Model};
use crate::script::{CAPABILITY, TaskSpec};
use crate::violation::{Breach, Kind, breach};

impl Model {
    /// Records a claim: tasks may be leased to it from this point.
    pub(crate) fn claim_submitted(&mut self, claim: &Claim) {
        *self.claim_counts.entry(claim.worker.to_string()).or_default() += 1;
        self.offers.insert(claim.worker.to_string(), claim.clone());
    }

    /// The claim by which a task is leased. It bounds the lease.
    pub(super) fn claim_of(
        &self,
        at: &Step<'_>,
        spec: &TaskSpec,
        worker: &str,
        begins: bool,
    ) -> Result<&Claim, Breach> {
        let Some(claim) = self.offers.get(worker) else {
            return breach(Kind::StrangeClaim, format!("{worker} did not claim"));
        };
        if !claim.lanes.contains(at.lane) || !serves(claim, spec) || claim.begin && !begins {
            let what = format!("{worker} claimed {:?} {:?}", claim.lanes, claim.capabilities);
            return breach(Kind::StrangeClaim, what);
        }
        Ok(claim)
    }

    /// Checks that no task which this claim could have leased precedes the leased one. The claim
    /// need not have seen changes since its commit began.
    pub(super) fn check_order(
        &self,
        at: &Step<'_>,
        facts: &Facts,
        claim: &Claim,
    ) -> Result<(), Breach> {
        // A task granted to a worker may be leased in any order.
        let granted = matches!(facts.position, Position::Granted { .. });
        let Some(own) = rank(facts, at.id).filter(|_| !granted) else { return Ok(()) };
        for (id, track) in self.tasks.iter().filter(|(id, _)| *id != at.id) {
            let spec = self.spec(id);
            let elsewhere = crate::script::LANES[spec.lane] != at.lane.as_str();
            // Admission by a concurrency limit is checked elsewhere.
            if elsewhere || spec.limit_key.is_some() || !serves(claim, spec) {
                continue;
            }
            let precedes = |other: &Facts| {
                other.position == Position::Queued
                    && other.deadline.is_none_or(|deadline| at.at < deadline)
                    && (resumes_attempt(other) || other.attempts < super::retry::max_attempts(spec))
                    && rank(other, id).is_some_and(|rank| rank < own)
            };
            if track.was_always(self.view, precedes) {
                return breach(Kind::Order, format!("{id} precedes it"));
            }
        }
        Ok(())
    }

    /// Checks a lost lease, whose task becomes ready again.
    pub(super) fn lease_lost(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        epoch: u64,
        cause: LeaseLoss,
    ) -> Result<(), Breach> {
        let too_early = facts.hold().is_some_and(|hold| at.at < hold.expires_at);
        if too_early && cause == LeaseLoss::Expired {
            return breach(Kind::LeaseLength, "it has not expired");
        }
        self.runs_out(at, facts, epoch)?;
        facts.lost_leases += 1;
        facts.state = State::Waiting { lost: Some(epoch), since: at.at, paused: None };
        Ok(())
    }

    /// Checks a lease that ends without its holder, perhaps before its expiry.
    pub(super) fn runs_out(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        epoch: u64,
    ) -> Result<(), Breach> {
        let fenced = (at.id.clone(), epoch);
        let registered = facts.hold().is_some_and(|hold| hold.registered);
        let is_dead = registered && self.is_dead(&fenced);
        let is_ending = facts.hold().is_some_and(|hold| hold.expires_at < at.at.plus_ms(1));
        let is_unheld = registered && !is_dead && self.may_be_unheld(&fenced, is_ending);
        ran_out(facts, epoch, at, is_dead || is_unheld)?;
        if facts.hold().is_some_and(|hold| at.at < hold.expires_at) {
            if is_unheld { self.note_unheld(fenced) } else { self.note_death() }
        }
        Ok(())
    }

    /// Whether the holder of a lease was just declared dead.
    fn is_dead(&self, fenced: &Fenced) -> bool {
        let holder = self.claims.get(fenced).map(|seen| &seen.worker);
        holder.is_some_and(|worker| self.workers.dead.contains(worker) && self.is_silent(worker))
    }

    /// Checks that a handler never counts on a lease for longer than requested, nor for longer
    /// than it lasts in the store, unless the store's clock was set.
    pub(crate) fn lease_left(
        &self,
        fenced: &Fenced,
        worker: &str,
        left: Duration,
    ) -> Result<(), Breach> {
        let requested = self.offers.get(worker).map(|claim| Duration::from_millis(claim.lease_ms));
        if requested.is_none_or(|requested| requested < left) {
            let what = format!("{worker} counts on {left:?} of {requested:?}");
            return breach(Kind::LeaseLength, what);
        }
        let hold = self.facts(&fenced.0).hold().filter(|hold| hold.epoch == fenced.1);
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        match hold {
            Some(hold)
                if !self.clock_is_set
                    && left_ms > 0
                    && hold.expires_at.plus_ms(1) < self.latest.plus_ms(left_ms) =>
            {
                let what = format!("{worker} counts on {left:?} at {}: {hold:?}", self.latest);
                breach(Kind::LeaseLength, what)
            }
            _ => Ok(()),
        }
    }

    /// Checks that an empty claim was granted no task. This is known only for a worker name that
    /// claimed once.
    pub(super) fn check_empty_claim(
        &self,
        submission: &Submission<'_>,
        claim: &Claim,
    ) -> Result<(), Breach> {
        let worker = claim.worker.as_str();
        if self.claim_counts.get(worker) != Some(&1) {
            return Ok(());
        }
        let granted =
            |(_, seen): &(&Fenced, &ClaimSeen)| seen.worker == worker && seen.seq > submission.seq;
        match self.claims.iter().find(granted) {
            Some((fenced, _)) => {
                breach(Kind::Worker, format!("{fenced:?} was granted to {worker}"))
            }
            None => Ok(()),
        }
    }

    /// Checks the expiry of a renewed lease: it is the requested one.
    pub(super) fn renewed(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        fenced: Fenced,
        expires_at: Timestamp,
    ) -> Result<(), Breach> {
        let spec = self.spec(at.id);
        let hold = held(facts, fenced.1, at, spec)?;
        let holder = self.claims.get(&fenced).and_then(|seen| self.offers.get(&seen.worker));
        let requested = self.renewing.get(&fenced).into_iter().flatten().copied();
        let mut lengths = requested.chain(holder.map(|claim| claim.lease_ms));
        if !lengths.any(|ms| hold.expires_at.max(at.at.plus_ms(ms)) == expires_at) {
            let what = format!("until {expires_at}, but it lasted until {}", hold.expires_at);
            return breach(Kind::LeaseLength, what);
        }
        hold.expires_at = expires_at;
        self.renewals.insert((fenced, expires_at), at.seq);
        Ok(())
    }
}

/// Whether a claim may lease such a task.
fn serves(claim: &Claim, spec: &TaskSpec) -> bool {
    let of_session = matches!(spec.limit_key, Some(LimitKey::Session(_)));
    (!spec.special || claim.capabilities.names.contains(CAPABILITY))
        && (!of_session || claim.capabilities.accepts_sessions())
}

/// The queue order of a ready task.
fn rank<'t>(facts: &Facts, id: &'t TaskId) -> Option<(i64, Timestamp, &'t TaskId)> {
    match facts.state {
        State::Waiting { since, .. } => Some((-i64::from(facts.priority), since, id)),
        _ => None,
    }
}

/// The lease, expired or not.
pub(super) fn lease(facts: &mut Facts, epoch: u64) -> Result<&mut Hold, Breach> {
    match &mut facts.state {
        State::Active(hold) if hold.epoch == epoch => Ok(hold),
        _ => breach(Kind::IllegalMove, format!("no lease under {epoch}")),
    }
}

/// The lease under this epoch, if its holder may still write.
pub(super) fn held<'f>(
    facts: &'f mut Facts,
    epoch: u64,
    at: &Step<'_>,
    spec: &TaskSpec,
) -> Result<&'f mut Hold, Breach> {
    let hold = lease(facts, epoch)?;
    in_time(hold, at, spec)?;
    Ok(hold)
}

/// The lease that a holder settles; an expired one, where the task accepts late settles.
pub(super) fn ends(facts: &Facts, at: &Step<'_>, spec: &TaskSpec) -> Result<u64, Breach> {
    match &facts.state {
        State::Active(hold) => {
            in_time(hold, at, spec)?;
            Ok(hold.epoch)
        }
        State::Waiting { lost: Some(epoch), .. } if spec.accept_expired_lease => Ok(*epoch),
        _ => breach(Kind::IllegalMove, "the task is not leased"),
    }
}

/// Returns a lease, and its attempt.
pub(super) fn gives_back(facts: &mut Facts, at: &Step<'_>, spec: &TaskSpec) -> Result<u64, Breach> {
    let Some(hold) = facts.hold().copied() else {
        return breach(Kind::IllegalMove, "the task is not leased");
    };
    in_time(&hold, at, spec)?;
    facts.attempts -= u32::from(hold.began_at.is_some());
    Ok(hold.epoch)
}

fn in_time(hold: &Hold, at: &Step<'_>, spec: &TaskSpec) -> Result<(), Breach> {
    if at.at < hold.expires_at || spec.accept_expired_lease {
        return Ok(());
    }
    breach(Kind::LateAccepted, format!("the lease lasted until {}", hold.expires_at))
}

/// Checks a lease that ends without its holder: it expired, or the holder was declared dead. An
/// attempt that has timed out ends by its timeout instead.
fn ran_out(facts: &mut Facts, epoch: u64, at: &Step<'_>, is_dead: bool) -> Result<(), Breach> {
    let hold = lease(facts, epoch)?;
    if at.at < hold.expires_at && !is_dead {
        return breach(Kind::LeaseLength, format!("the lease lasts until {}", hold.expires_at));
    }
    match hold.over_at {
        Some(over) if over <= at.at => {
            breach(Kind::Timeout, format!("the attempt timed out at {over}"))
        }
        _ => Ok(()),
    }
}

/// Whether the next claim resumes the attempt.
fn resumes_attempt(facts: &Facts) -> bool {
    matches!(facts.state, State::Waiting { paused: Some(_), .. })
}
