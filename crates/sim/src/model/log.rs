//! The log, event by event: each must be a transition that the rules allow.

use windlass_core::{
    Change, CountedByQuota, LaneName, LogEvent, OnTimeout, PayloadKey, PublicState, Settled, Slot,
    TaskId, Tenant, Timestamp, limits,
};
use windlass_store::{MemoryStore, Store};

use crate::model::children::ORPHANED;
use crate::model::facts::{Content, Facts, Hold, LaneFacts, PausedAttempt, SettleSeen, State};
use crate::model::lease::{ends, gives_back, held};
use crate::model::outcome::Fenced;
use crate::model::retry::max_attempts;
use crate::model::state::{ClaimSeen, Model};
use crate::ready::ready;
use crate::script::TaskSpec;
use crate::violation::{Breach, Kind, breach};

/// The reason that operators of a script give.
pub(crate) const OPERATOR: &str = "operator";

/// The engine's reason when a suspension timed out.
const UNANSWERED: &str = "the suspension timed out";

impl Model {
    pub(super) fn read(&mut self, entry: &LogEvent) -> Result<(), Breach> {
        if entry.seq != self.last_seq + 1 {
            return breach(Kind::LogGap, format!("{} follows {}", entry.seq, self.last_seq));
        }
        self.last_seq = entry.seq;
        self.logged_at = self.logged_at.max(entry.at);
        let Some(change) = entry.change() else {
            return breach(Kind::IllegalMove, format!("unknown event {}", entry.body));
        };
        self.fold.read(entry).or_else(|what| breach(Kind::IllegalMove, what))?;
        if [crate::workflow::TENANT, crate::external_runtime::TENANT]
            .contains(&entry.tenant.as_str())
        {
            return Ok(());
        }
        let Some(id) = entry.task.clone() else { return self.ordered_so(entry, &change) };
        let name = change.name();
        self.happened.insert((id.clone(), name), entry.seq);
        let before = self.facts(&id).clone();
        let mut facts = before.clone();
        let step = Step { id: &id, at: entry.at, lane: &entry.lane, seq: entry.seq };
        self.step(&step, &mut facts, &change).map_err(|found| Breach {
            what: format!("{}: {id} {name} at {:?}: {}", entry.seq, before.state, found.what),
            ..found
        })?;
        if change == Change::Created {
            facts.kind = entry.kind.clone();
            self.keyed.push(id.clone());
        }
        if facts.ended() && !before.ended() {
            facts.ended_at = Some(entry.at);
            facts.doom();
        }
        self.set_position(&step, &before, &mut facts);
        self.count_leases(&step, &before, &facts)?;
        self.count_owner(&step, &before, &change);
        self.track(&id).push(entry.seq, facts.clone());
        self.count_children(&step, &before, &facts)
    }

    pub(super) fn track(&mut self, id: &TaskId) -> &mut super::facts::Track<Facts> {
        self.tasks.get_mut(id).expect("scripts create no other tasks")
    }

    fn lane_track(&mut self, lane: &LaneName) -> &mut super::facts::Track<LaneFacts> {
        self.lanes.get_mut(lane).expect("scripts use no other lanes")
    }

    fn ordered_so(&mut self, entry: &LogEvent, change: &Change) -> Result<(), Breach> {
        if let Change::QuotaSet { scope, limit, rate } = change {
            self.quota_set(entry, scope, (*limit, *rate));
            return Ok(());
        }
        let track = self.lane_track(&entry.lane);
        let mut facts = track.last().clone();
        match change {
            Change::LaneStateChanged { state } => facts.state = *state,
            Change::LaneLimited { limit } => (facts.limit, facts.counts) = (*limit, true),
            other => return breach(Kind::IllegalMove, format!("a lane was {}", other.name())),
        }
        track.push(entry.seq, facts);
        Ok(())
    }

    /// Counts the leases of a lane that has, or had, a limit.
    fn count_leases(&mut self, at: &Step<'_>, was: &Facts, is: &Facts) -> Result<(), Breach> {
        let counted = |facts: &Facts| facts.hold().is_some_and(|hold| hold.counted);
        let track = self.lane_track(at.lane);
        let mut lane = track.last().clone();
        match (counted(was), counted(is)) {
            (false, true) => lane.running += 1,
            (true, false) => lane.running -= 1,
            _ => {}
        }
        lane.exists = true;
        let exceeded = lane.limit.is_some_and(|limit| lane.running > limit);
        if exceeded && is.hold().is_some() && was.hold().is_none() {
            let what = format!("{}: lease {} of {lane:?}", at.id, lane.running);
            return breach(Kind::LaneIgnored, what);
        }
        if lane != *track.last() {
            track.push(at.seq, lane);
        }
        Ok(())
    }

    fn step(&mut self, at: &Step<'_>, facts: &mut Facts, change: &Change) -> Result<(), Breach> {
        let spec = self.spec(at.id).clone();
        if facts.ended() && !matches!(change, Change::Replayed { .. } | Change::Deleted) {
            return breach(Kind::EndedChanged, "an ended task changes only by a replay");
        }
        if !facts.exists() && *change != Change::Created {
            return breach(Kind::IllegalMove, "the task does not exist");
        }
        match change {
            Change::Created => self.created(at, facts, &spec),
            Change::Claimed { epoch, worker, attempt } => {
                let worker = worker.to_string();
                let seen = ClaimSeen { worker, attempt: *attempt, seq: at.seq };
                self.claimed(at, facts, *epoch, seen)
            }
            Change::Begun { epoch, attempt } => {
                let hold = held(facts, *epoch, at, &spec)?;
                hold.began_at = Some(at.at);
                hold.over_at = spec.timeout_ms.map(|ms| at.at.plus_ms(ms));
                self.count(at, facts, *epoch, *attempt, &spec)
            }
            Change::Renewed { epoch, expires_at } => {
                self.renewed(at, facts, (at.id.clone(), *epoch), *expires_at)
            }
            Change::Progressed { epoch, percent, .. } => {
                held(facts, *epoch, at, &spec)?;
                self.progress.insert(((at.id.clone(), *epoch), *percent), at.seq);
                Ok(())
            }
            Change::Completed { epoch } => {
                let lease = ends(facts, at, &spec)?;
                if lease != *epoch {
                    return breach(Kind::IllegalMove, format!("the lease is {lease}"));
                }
                self.unread.push(((at.id.clone(), lease), facts.execution));
                self.settled(at, facts, lease, None, Settled::Completed);
                facts.state = State::Ended(PublicState::Completed);
                Ok(())
            }
            Change::RetryScheduled { class, reason, at: next } => {
                self.failed(at, facts, &spec, (*class, reason), Settled::RetryAt(*next))?;
                facts.rest(*next, at.at, None);
                Ok(())
            }
            Change::Failed { class, reason } => {
                self.failed(at, facts, &spec, (*class, reason), Settled::Failed)?;
                facts.state = State::Ended(PublicState::Failed);
                Ok(())
            }
            _ => self.step_back(at, facts, change, &spec),
        }
    }

    /// The transitions that are not steps of an attempt.
    fn step_back(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        change: &Change,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        match change {
            Change::Snoozed { until } => {
                let paused = facts.hold().and_then(|hold| resumed_attempt(hold, at));
                let lease = match paused {
                    Some(_) => ends(facts, at, spec)?,
                    None => gives_back(facts, at, spec)?,
                };
                let content = Content::Delay { ms: at.at.ms_until(*until) };
                self.settled(at, facts, lease, Some(content), Settled::SnoozedUntil(*until));
                facts.rest(*until, at.at, paused);
            }
            Change::Released { epoch } => self.released(at, facts, *epoch, spec)?,
            Change::Cancelled { reason } => {
                if reason == UNANSWERED {
                    self.timed_out(at, facts, OnTimeout::Cancel)?;
                } else if reason == ORPHANED {
                    self.check_called_off(facts)?;
                } else if reason != OPERATOR {
                    let lease = ends(facts, at, spec)?;
                    let content = Some(Content::Cancel(reason.clone()));
                    self.settled(at, facts, lease, content, Settled::Cancelled);
                }
                facts.state = State::Ended(PublicState::Cancelled);
            }
            Change::Promoted => match facts.state {
                State::Delayed { until, paused } if until <= at.at => {
                    facts.state = State::Waiting { lost: None, since: at.at, paused };
                }
                _ => return breach(Kind::IllegalMove, "it was not delayed until this time"),
            },
            Change::LeaseLost { epoch, lost_leases, cause } => {
                self.lease_lost(at, facts, *epoch, *cause)?;
                let spent = facts.attempts >= max_attempts(spec)
                    || facts.lost_leases > spec.max_lost_leases;
                if facts.lost_leases != *lost_leases || spent {
                    return breach(Kind::Attempts, format!("{lost_leases} leases were lost"));
                }
            }
            Change::Expired => {
                if facts.deadline.is_none_or(|deadline| at.at < deadline) {
                    self.timed_out(at, facts, OnTimeout::Expire)?;
                }
                facts.state = State::Ended(PublicState::Expired);
            }
            Change::PriorityChanged { priority } => facts.priority = *priority,
            Change::Replayed { execution } => {
                replayed(at, facts, *execution, spec)?;
                self.joins_again(facts);
            }
            Change::Deleted => {
                self.check_deleted(at, facts, spec)?;
                // Another task of this id may be created and end before the comparison.
                self.frozen.remove(at.id);
                self.mailboxes.forget(at.id);
                *facts = Facts::absent();
            }
            other => return self.wait(at, facts, other, spec),
        }
        Ok(())
    }

    /// Checks a released lease; the next lease resumes an attempt of an earlier one.
    fn released(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        epoch: u64,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        let hold = *held(facts, epoch, at, spec)?;
        return_to_queue(facts, &hold, at);
        self.settled(at, facts, epoch, Some(Content::Release), Settled::Released);
        Ok(())
    }

    /// Checks that an ended task is retained as long as promised, unless a caller deletes it.
    fn check_deleted(&self, at: &Step<'_>, facts: &Facts, spec: &TaskSpec) -> Result<(), Breach> {
        let Some(ended_at) = facts.ended_at.filter(|_| facts.ended()) else {
            return breach(Kind::IllegalMove, "it has not ended");
        };
        self.check_family_done(at, facts)?;
        let retention_ms = spec.retention_ms.unwrap_or(limits::DEFAULT_RETENTION_MS);
        if at.at < ended_at.plus_ms(retention_ms) && !self.deleting.contains(at.id) {
            return breach(Kind::DeletedEarly, format!("it ended at {ended_at}"));
        }
        Ok(())
    }

    fn created(&mut self, at: &Step<'_>, facts: &mut Facts, spec: &TaskSpec) -> Result<(), Breach> {
        if facts.exists() {
            return breach(Kind::IllegalMove, "it exists already");
        }
        let lane = self.lanes[at.lane].last();
        if !lane.takes() {
            return breach(Kind::LaneIgnored, format!("created in {lane:?}"));
        }
        self.joins(at, facts, spec)?;
        facts.priority = spec.priority;
        facts.deadline = spec.deadline_ms.map(|ms| at.at.plus_ms(ms));
        facts.rest(at.at.plus_ms(spec.start_ms), at.at, None);
        Ok(())
    }

    fn claimed(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        epoch: u64,
        seen: ClaimSeen,
    ) -> Result<(), Breach> {
        let spec = self.spec(at.id).clone();
        let claim = self.claim_of(at, &spec, &seen.worker, seen.attempt.is_some())?;
        let expires_at = at.at.plus_ms(claim.lease_ms);
        let registered = claim.registered;
        let State::Waiting { paused, .. } = facts.state else {
            return breach(Kind::IllegalMove, "only a ready task can be leased");
        };
        if seen.attempt.is_some() && !claim.begin && paused.is_none() {
            return breach(Kind::StrangeClaim, "the claim must not begin an attempt");
        }
        if facts.deadline.is_some_and(|deadline| deadline <= at.at) {
            return breach(Kind::IllegalMove, "its deadline has passed");
        }
        self.check_order(at, facts, claim)?;
        let metered = self.passes(at, facts, &spec, &seen.worker)?;
        self.owns(at, &spec, &seen.worker)?;
        let lane = self.lanes[at.lane].last();
        if !lane.hands_out() {
            return breach(Kind::LaneIgnored, format!("leased from {lane:?}"));
        }
        let mut earlier = self.claims.range(..=(at.id.clone(), u64::MAX)).rev();
        let last = earlier.next().filter(|((id, _), _)| id == at.id).map(|((_, epoch), _)| *epoch);
        if last.is_some_and(|last| epoch <= last) {
            return breach(Kind::IllegalMove, format!("epoch {epoch} after {last:?}"));
        }
        if facts.epoch.is_some_and(|last| epoch != last + 1) {
            return breach(Kind::IllegalMove, format!("epoch {epoch} after {:?}", facts.epoch));
        }
        let may_be_unmetered = self.may_miss_quota(metered);
        let fresh = hold(at, paused, epoch, expires_at);
        let hold = Hold { registered, counted: lane.counts, metered, may_be_unmetered, ..fresh };
        // The first claim shows the epoch before it, if no record has shown it.
        self.track(at.id).amend(|before| before.epoch = Some(epoch - 1));
        facts.epoch = Some(epoch);
        facts.state = State::Active(hold);
        match (seen.attempt, paused) {
            (Some(attempt), None) => {
                let State::Active(hold) = &mut facts.state else { unreachable!() };
                hold.began_at = Some(at.at);
                hold.over_at = spec.timeout_ms.map(|ms| at.at.plus_ms(ms));
                self.count(at, facts, epoch, attempt, &spec)?;
            }
            (attempt, Some(_)) if attempt != Some(facts.attempts) => {
                return breach(Kind::Attempts, format!("{attempt:?} is resumed"));
            }
            (Some(attempt), Some(_)) => drop(self.begun.insert((at.id.clone(), epoch), attempt)),
            (None, _) => {}
        }
        self.claims.insert((at.id.clone(), epoch), seen);
        Ok(())
    }

    /// Counts an attempt that begins.
    pub(super) fn count(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        epoch: u64,
        attempt: u32,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        facts.attempts += 1;
        let max = max_attempts(spec);
        if attempt != facts.attempts || attempt > max {
            let what = format!("attempt {attempt}, but {} of {max} is next", facts.attempts);
            return breach(Kind::Attempts, what);
        }
        match self.begun.insert((at.id.clone(), epoch), attempt) {
            None => Ok(()),
            Some(first) => breach(Kind::Attempts, format!("attempt {first} began under it")),
        }
    }

    pub(super) fn settled(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        epoch: u64,
        content: Option<Content>,
        answer: Settled,
    ) {
        facts.settled = Some(epoch);
        let seen = SettleSeen { content, answer, seq: at.seq };
        self.settles.insert((at.id.clone(), epoch), seen);
    }

    /// Reads the results that the last commit stored, if they still exist.
    pub(super) fn read_results(&mut self, memory: &MemoryStore) -> Result<(), Breach> {
        for (fenced, execution) in std::mem::take(&mut self.unread) {
            let facts = self.facts(&fenced.0);
            if !facts.exists() || facts.epoch != Some(fenced.1) || facts.execution != execution {
                continue;
            }
            let result = result_of(memory, &fenced, execution);
            let given = self.results.get(&fenced).is_some_and(|results| results.contains(&result));
            if !given {
                return breach(Kind::StrangeResult, format!("{fenced:?} has {result:?}"));
            }
            let seen = self.settles.get_mut(&fenced).expect("it was just settled");
            seen.content = Some(Content::Complete(result));
        }
        Ok(())
    }
}

/// The stored result of an execution of a task.
pub(super) fn result_of(memory: &MemoryStore, fenced: &Fenced, execution: u32) -> Option<Vec<u8>> {
    let tenant = Tenant::default();
    let key = PayloadKey { tenant, task: fenced.0.clone(), execution, slot: Slot::RESULT };
    let found = ready(memory.payloads(&[key])).expect("memory does not fail");
    found.into_iter().flatten().next().map(|payload| payload.bytes.to_vec())
}

/// A log event of a task.
pub(super) struct Step<'e> {
    pub(super) id: &'e TaskId,
    pub(super) at: Timestamp,
    pub(super) lane: &'e LaneName,
    pub(super) seq: u64,
}

/// A lease that begins, perhaps with a resumed attempt.
fn hold(at: &Step<'_>, paused: Option<PausedAttempt>, epoch: u64, expires_at: Timestamp) -> Hold {
    Hold {
        epoch,
        began_at: paused.map(|paused| paused.began_at),
        over_at: paused.and_then(|paused| paused.left_ms).map(|ms| at.at.plus_ms(ms)),
        resumed: paused.is_some(),
        registered: false,
        counted: false,
        metered: CountedByQuota::default(),
        may_be_unmetered: false,
        expires_at,
    }
}

/// Returns a task to its lane. An attempt that began under an earlier lease is resumed by the
/// next; any other attempt is uncounted.
pub(super) fn return_to_queue(facts: &mut Facts, hold: &Hold, at: &Step<'_>) {
    let paused = resumed_attempt(hold, at);
    facts.attempts -= u32::from(paused.is_none() && hold.began_at.is_some());
    facts.state = State::Waiting { lost: None, since: at.at, paused };
}

fn replayed(
    at: &Step<'_>,
    facts: &mut Facts,
    execution: u32,
    spec: &TaskSpec,
) -> Result<(), Breach> {
    let spent = execution > spec.max_replays;
    if !facts.ended() || execution != facts.execution + 1 || spent {
        return breach(Kind::IllegalMove, format!("replayed as {execution}"));
    }
    facts.execution = execution;
    (facts.attempts, facts.lost_leases) = (0, 0);
    facts.deadline = spec.deadline_ms.map(|ms| at.at.plus_ms(ms));
    facts.state = State::waiting(at.at);
    Ok(())
}

/// The attempt of a returned lease, if it began under an earlier lease.
fn resumed_attempt(hold: &Hold, at: &Step<'_>) -> Option<PausedAttempt> {
    hold.began_at.filter(|_| hold.resumed).map(|began_at| {
        let left_ms = hold.over_at.map(|over_at| at.at.ms_until(over_at));
        PausedAttempt { began_at, left_ms }
    })
}
