//! Leases: who asked for them, for how long, and until when a holder may write.

use std::time::Duration;

use windlass_core::command::Claim;
use windlass_core::{LeaseLoss, LimitKey, TaskId, Timestamp};

use crate::model::answer::{Asked, Fenced};
use crate::model::facts::{Facts, Hold, Stand, State};
use crate::model::log::Step;
use crate::model::state::{ClaimSeen, Model};
use crate::script::{CAPABILITY, TaskSpec};
use crate::violation::{Breach, Kind, breach};

impl Model {
    /// From here on tasks may be handed out to whoever claims like this.
    pub(crate) fn offered(&mut self, claim: &Claim) {
        *self.asks.entry(claim.worker.to_string()).or_default() += 1;
        self.offers.insert(claim.worker.to_string(), claim.clone());
    }

    /// The claim by which a task is handed out. It bounds what that may be.
    pub(super) fn claim_of(
        &self,
        at: &Step<'_>,
        spec: &TaskSpec,
        worker: &str,
        begins: bool,
    ) -> Result<&Claim, Breach> {
        let Some(claim) = self.offers.get(worker) else {
            return breach(Kind::StrangeClaim, format!("{worker} did not ask"));
        };
        if !claim.lanes.contains(at.lane) || !serves(claim, spec) || claim.begin && !begins {
            let what = format!("{worker} asked for {:?} {:?}", claim.lanes, claim.offer);
            return breach(Kind::StrangeClaim, what);
        }
        Ok(claim)
    }

    /// No task that this claim could have had stands before the one it is handed. What was not
    /// so all the time since the commit began, the claim may not have seen.
    pub(super) fn check_order(
        &self,
        at: &Step<'_>,
        facts: &Facts,
        claim: &Claim,
    ) -> Result<(), Breach> {
        // What is kept for a worker is its own, wherever it stands.
        let kept = matches!(facts.stand, Stand::Kept { .. });
        let Some(own) = rank(facts, at.id).filter(|_| !kept) else { return Ok(()) };
        for (id, track) in self.tasks.iter().filter(|(id, _)| *id != at.id) {
            let spec = self.spec(id);
            let elsewhere = crate::script::LANES[spec.lane] != at.lane.as_str();
            // Whether a gate lets its own start is another question.
            if elsewhere || spec.gate.is_some() || !serves(claim, spec) {
                continue;
            }
            let stands_before = |other: &Facts| {
                other.stand == Stand::Queue
                    && other.deadline.is_none_or(|deadline| at.at < deadline)
                    && (lease_kept(other) || other.attempts < super::retry::max_attempts(spec))
                    && rank(other, id).is_some_and(|rank| rank < own)
            };
            if track.was_always(self.view, stands_before) {
                return breach(Kind::Order, format!("{id} stands before it"));
            }
        }
        Ok(())
    }

    /// A lease is lost, and its task waits again.
    pub(super) fn lease_lost(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        epoch: u64,
        cause: LeaseLoss,
    ) -> Result<(), Breach> {
        let early = facts.hold().is_some_and(|hold| at.at < hold.expires_at);
        if early && cause == LeaseLoss::Expired {
            return breach(Kind::LeaseLength, "it has not expired");
        }
        self.runs_out(at, facts, epoch)?;
        facts.lost_leases += 1;
        facts.state = State::Waiting { lost: Some(epoch), since: at.at, pause: None };
        Ok(())
    }

    /// A lease ends by itself, perhaps before its time.
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

    /// Whether the holder of a lease was just taken for dead.
    fn is_dead(&self, fenced: &Fenced) -> bool {
        let holder = self.claims.get(fenced).map(|seen| &seen.worker);
        holder.is_some_and(|worker| self.staff.dead.contains(worker) && self.is_silent(worker))
    }

    /// A handler never counts on a lease for longer than it was asked for, nor for longer than it
    /// lasts in the store, as long as nobody sets the clock of the store.
    pub(crate) fn lease_left(
        &self,
        fenced: &Fenced,
        worker: &str,
        left: Duration,
    ) -> Result<(), Breach> {
        let asked = self.offers.get(worker).map(|claim| Duration::from_millis(claim.lease_ms));
        if asked.is_none_or(|asked| asked < left) {
            let what = format!("{worker} counts on {left:?} of {asked:?}");
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

    /// A caller that is told that there was nothing to claim was granted nothing. Whether it was is
    /// known of a name that asked once.
    pub(super) fn nothing_as_told(&self, asked: &Asked<'_>, claim: &Claim) -> Result<(), Breach> {
        let worker = claim.worker.as_str();
        if self.asks.get(worker) != Some(&1) {
            return Ok(());
        }
        let granted =
            |(_, seen): &(&Fenced, &ClaimSeen)| seen.worker == worker && seen.seq > asked.seq;
        match self.claims.iter().find(granted) {
            Some((fenced, _)) => {
                breach(Kind::Worker, format!("{fenced:?} was granted to {worker}"))
            }
            None => Ok(()),
        }
    }

    /// Until when a lease is renewed: as one who asked for it said.
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
        let asked = self.renewing.get(&fenced).into_iter().flatten().copied();
        let mut lengths = asked.chain(holder.map(|claim| claim.lease_ms));
        if !lengths.any(|ms| hold.expires_at.max(at.at.plus_ms(ms)) == expires_at) {
            let what = format!("until {expires_at}, where it lasted until {}", hold.expires_at);
            return breach(Kind::LeaseLength, what);
        }
        hold.expires_at = expires_at;
        self.renewals.insert((fenced, expires_at), at.seq);
        Ok(())
    }
}

/// Whether a claim may be handed such a task.
fn serves(claim: &Claim, spec: &TaskSpec) -> bool {
    let of_session = matches!(spec.gate, Some(LimitKey::Session(_)));
    (!spec.special || claim.offer.capabilities.contains(CAPABILITY))
        && (!of_session || claim.offer.takes_sessions())
}

/// Where a waiting task stands among others.
fn rank<'t>(facts: &Facts, id: &'t TaskId) -> Option<(i64, Timestamp, &'t TaskId)> {
    match facts.state {
        State::Waiting { since, .. } => Some((-i64::from(facts.priority), since, id)),
        _ => None,
    }
}

/// The lease, whether or not it ran out.
pub(super) fn lease(facts: &mut Facts, epoch: u64) -> Result<&mut Hold, Breach> {
    match &mut facts.state {
        State::Active(hold) if hold.epoch == epoch => Ok(hold),
        _ => breach(Kind::IllegalMove, format!("nobody holds it under {epoch}")),
    }
}

/// The lease, for whoever holds it under this epoch and may still write.
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

/// The lease that a holder ends; it may be one that ran out, where that is allowed.
pub(super) fn ends(facts: &Facts, at: &Step<'_>, spec: &TaskSpec) -> Result<u64, Breach> {
    match &facts.state {
        State::Active(hold) => {
            in_time(hold, at, spec)?;
            Ok(hold.epoch)
        }
        State::Waiting { lost: Some(epoch), .. } if spec.accept_expired_lease => Ok(*epoch),
        _ => breach(Kind::IllegalMove, "nobody holds it"),
    }
}

/// Gives a lease back, and its attempt.
pub(super) fn gives_back(facts: &mut Facts, at: &Step<'_>, spec: &TaskSpec) -> Result<u64, Breach> {
    let Some(hold) = facts.hold().copied() else {
        return breach(Kind::IllegalMove, "nobody holds it");
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

/// A lease ends by itself when its time is over or its holder is taken for dead, and an attempt
/// with a limit before that.
fn ran_out(facts: &mut Facts, epoch: u64, at: &Step<'_>, is_dead: bool) -> Result<(), Breach> {
    let hold = lease(facts, epoch)?;
    if at.at < hold.expires_at && !is_dead {
        return breach(Kind::LeaseLength, format!("the lease lasts until {}", hold.expires_at));
    }
    match hold.over_at {
        Some(over) if over <= at.at => {
            breach(Kind::Timeout, format!("the attempt was over at {over}"))
        }
        _ => Ok(()),
    }
}

/// Whether an attempt goes on with the next claim.
fn lease_kept(facts: &Facts) -> bool {
    matches!(facts.state, State::Waiting { pause: Some(_), .. })
}
