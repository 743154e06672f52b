//! Worker records, grants and revoked leases: a worker with timely heartbeats keeps its leases,
//! and a worker without them loses all of its leases.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::command::{ClaimGranted, Grant, QuotaScope};
use windlass_core::{
    Change, ChangeSet, Command, PublicState, Rejection, RowKey, Table, Tenant, Timestamp, Value,
    Worker, WorkerId,
};
use windlass_store::MemoryStore;

use crate::model::facts::{Facts, Position, State};
use crate::model::log::{Step, return_to_queue};
use crate::model::outcome::{Fenced, Submission};
use crate::model::record::one;
use crate::model::rejection::may_be;
use crate::model::state::Model;
use crate::script::TaskSpec;
use crate::violation::{Breach, Kind, breach};

/// After this many missed heartbeats, and a grace period, a worker must be declared dead.
const MANY_BEATS: u64 = 20;
const A_WHILE_MS: u64 = 30_000;

#[derive(Debug, Default)]
pub(super) struct Workers {
    beats: BTreeMap<String, Beat>,
    /// Workers that the observed commit may declare dead.
    pub(super) dead: BTreeSet<String>,
    /// Workers that may have been deregistered.
    deregistering: BTreeSet<String>,
    /// Leases that ended before their expiry since the last count.
    deaths: u32,
    /// Workers with a heartbeat in the observed commit.
    heard: BTreeSet<String>,
    /// The number of committed heartbeats, by worker.
    heartbeats: BTreeMap<String, u32>,
    /// Leases that ended because a heartbeat reported that their worker does not hold them.
    unheld: BTreeSet<Fenced>,
    /// How many of these were not counted yet.
    uncounted: u32,
}

/// The last heartbeat of a worker, and its interval.
#[derive(Debug)]
struct Beat {
    seen_at: Timestamp,
    heartbeat_interval_ms: u64,
    missed: bool,
}

impl Workers {
    /// Whether a worker deregistered at some time, or is about to.
    pub(super) fn may_be_deregistered(&self, worker: &str) -> bool {
        self.deregistering.contains(worker)
    }
}

impl Model {
    /// Learns which workers this commit may declare dead: only suspect ones.
    pub(super) fn learn_dead(&mut self, changes: &ChangeSet) {
        let text = |key: &RowKey| match key.values.last() {
            Some(Value::Text(id)) if key.table == Table::Worker => Some(id.to_string()),
            _ => None,
        };
        let gone: Vec<String> = changes.deletes.iter().filter_map(|(key, _)| text(key)).collect();
        // A deleted worker owns no session.
        gone.iter().for_each(|id| self.concurrency.disown(id));
        let updated = changes.updates.iter().filter_map(|update| text(&update.row.key));
        let inserted = changes.inserts.iter().filter_map(|row| text(&row.key));
        // A worker that deregisters sends its last heartbeat with that.
        self.workers.heard = updated.clone().chain(inserted).chain(gone.clone()).collect();
        let missed = |id: &String| self.workers.beats.get(id).is_some_and(|beat| beat.missed);
        self.workers.dead = updated.chain(gone).filter(missed).collect();
    }

    /// The number of committed heartbeats of a worker.
    pub(crate) fn heartbeats(&self, worker: &str) -> u32 {
        self.workers.heartbeats.get(worker).copied().unwrap_or_default()
    }

    /// Records that a worker is about to deregister.
    pub(crate) fn deregistration_submitted(&mut self, worker: &str) {
        self.workers.deregistering.insert(worker.to_owned());
    }

    /// Leases that ended before their expiry since the last call.
    pub(crate) fn take_deaths(&mut self) -> u32 {
        std::mem::take(&mut self.workers.deaths)
    }

    pub(super) fn note_death(&mut self) {
        self.workers.deaths += 1;
    }

    /// Whether the worker of this lease may just have reported that it does not hold it. A worker
    /// that started a handler settles or releases the lease, unless it is about to end. In the
    /// store a lease may outlast the worker's view of it: after a clock change, after a renewal
    /// whose answer was lost, or for less than a millisecond, because the time of a batch is
    /// raised above every commit it sees.
    pub(super) fn may_be_unheld(&self, fenced: &Fenced, is_ending: bool) -> bool {
        let worker = self.claims.get(fenced).map(|seen| &seen.worker);
        let is_renewed = self.renewals.keys().any(|(renewed, _)| renewed == fenced);
        let is_started = self.started.contains(fenced);
        let outlasts = self.clock_is_set || is_renewed || is_ending || !is_started;
        worker.is_some_and(|worker| {
            self.workers.heard.contains(worker)
                && (outlasts || self.workers.may_be_deregistered(worker))
        })
    }

    pub(super) fn note_unheld(&mut self, fenced: Fenced) {
        self.workers.unheld.insert(fenced);
        self.workers.uncounted += 1;
    }

    /// Leases that ended as not held since the last call.
    pub(crate) fn take_unheld(&mut self) -> u32 {
        std::mem::take(&mut self.workers.uncounted)
    }

    /// Checks that a worker does not act under a lease that it reported as not held: a heartbeat
    /// must not end a lease whose grant is on its way to the worker.
    pub(super) fn check_held(&self, fenced: &Fenced) -> Result<(), Breach> {
        if self.workers.unheld.contains(fenced) {
            return breach(Kind::Worker, format!("{fenced:?} was ended, but is held"));
        }
        Ok(())
    }

    /// The leases of registered workers that last longer than this and have no started handler,
    /// and their holders.
    pub(crate) fn leases_beyond(&self, ms: u64) -> impl Iterator<Item = (Fenced, &str)> {
        self.present().filter_map(move |(id, facts)| {
            let hold = facts.hold().filter(|hold| hold.registered)?;
            let fenced = (id.clone(), hold.epoch);
            let worker = &self.claims.get(&fenced)?.worker;
            let is_on =
                self.latest.plus_ms(ms) < hold.expires_at && !self.started.contains(&fenced);
            is_on.then_some((fenced, worker.as_str()))
        })
    }

    /// Whether a worker missed its heartbeat interval.
    pub(super) fn is_silent(&self, worker: &str) -> bool {
        let beat = self.workers.beats.get(worker);
        beat.is_none_or(|beat| beat.seen_at.plus_ms(beat.heartbeat_interval_ms) <= self.latest)
    }

    /// Learns the heartbeats of a worker. A deleted worker that did not deregister has lost its
    /// leases.
    pub(super) fn compare_worker(
        &mut self,
        memory: &MemoryStore,
        id: String,
    ) -> Result<(), Breach> {
        let key = Worker::key_of(&Tenant::default(), &WorkerId::new(&id));
        if let Some(worker) = one::<Worker>(memory, key) {
            let (seen_at, heartbeat_interval_ms) = (worker.seen_at, worker.heartbeat_interval_ms);
            let missed = worker.suspect_at.is_some();
            let beat = Beat { seen_at, heartbeat_interval_ms, missed };
            let before = self.workers.beats.insert(id.clone(), beat);
            if before.is_none_or(|before| before.seen_at < seen_at) {
                *self.workers.heartbeats.entry(id).or_default() += 1;
            }
            return Ok(());
        }
        if self.workers.beats.remove(&id).is_none() || self.workers.deregistering.contains(&id) {
            return Ok(());
        }
        for (task, facts) in self.present() {
            let Some(hold) = facts.hold().filter(|hold| hold.registered) else { continue };
            let claim = self.claims.get(&(task.clone(), hold.epoch));
            // Claims of concurrent commits were not visible.
            if claim.is_some_and(|seen| seen.worker == id && seen.seq <= self.view) {
                return breach(Kind::Worker, format!("{id} was deleted and holds {task}"));
            }
        }
        Ok(())
    }

    /// Checks that no worker stays alive long after its last heartbeat.
    pub(crate) fn check_workers(&self) -> Result<(), Breach> {
        for (worker, Beat { seen_at, heartbeat_interval_ms, .. }) in &self.workers.beats {
            if seen_at.plus_ms(MANY_BEATS * heartbeat_interval_ms + A_WHILE_MS) < self.latest {
                return breach(Kind::Worker, format!("last heartbeat of {worker}: {seen_at}"));
            }
        }
        Ok(())
    }

    /// Checks a grant, its expiry, or the revocation of a grant or of a lease.
    pub(super) fn grant_changed(
        &self,
        at: &Step<'_>,
        facts: &mut Facts,
        change: &Change,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        let freed = if spec.limit_key.is_some() { Position::Unknown } else { Position::Queued };
        if let Change::Revoked { epoch, worker, .. } = change
            && let Some(hold) = facts.hold().copied()
        {
            let claim = self.claims.get(&(at.id.clone(), *epoch));
            if hold.epoch != *epoch || claim.is_none_or(|seen| seen.worker != worker.as_str()) {
                return breach(Kind::IllegalMove, format!("{worker} does not hold this lease"));
            }
            return_to_queue(facts, &hold, at);
            return Ok(());
        }
        let waits = matches!(facts.state, State::Waiting { .. });
        let next = match (change, &facts.position) {
            _ if !waits => None,
            (Change::Granted { worker, until }, position) if at.at < *until => {
                let free = match position {
                    Position::Queued | Position::Unknown => true,
                    Position::Blocked | Position::Granted { until: None, .. } => false,
                    Position::Granted { worker: granted_to, until: Some(end) } => {
                        granted_to == worker.as_str() || *end <= at.at
                    }
                };
                let granted = Position::Granted { worker: worker.to_string(), until: Some(*until) };
                free.then_some(granted)
            }
            (
                Change::GrantExpired { worker },
                Position::Granted { worker: granted_to, until: Some(until) },
            ) => (granted_to == worker.as_str() && *until <= at.at).then_some(freed),
            (
                Change::Revoked { worker, .. },
                Position::Granted { worker: granted_to, until: Some(_) },
            ) => (granted_to == worker.as_str()).then_some(freed),
            _ => None,
        };
        let Some(next) = next else {
            return breach(Kind::IllegalMove, format!("its position is {:?}", facts.position));
        };
        facts.position = next;
        Ok(())
    }

    pub(super) fn is_granted(
        &self,
        submission: &Submission<'_>,
        grant: &Grant,
        until: Timestamp,
    ) -> bool {
        let granted = Position::Granted { worker: grant.worker.to_string(), until: Some(until) };
        self.tasks[&grant.task.id].was(submission.seq, |facts| facts.position == granted)
    }

    /// Whether a grant, a claim of a granted task or a revocation may be rejected with this
    /// reason; none for other commands, or if the task can be the reason.
    pub(super) fn may_reject_to_keep(
        &self,
        submission: &Submission<'_>,
        rejection: &Rejection,
    ) -> Option<bool> {
        let id = match submission.command {
            Command::Grant(grant) => &grant.task.id,
            Command::ClaimGranted(claim) => &claim.task.id,
            Command::Revoke(revoke) => &revoke.task.id,
            _ => return None,
        };
        let was = |test: &dyn Fn(&Facts) -> bool| self.tasks[id].was(submission.seq, test);
        Some(match (submission.command, rejection) {
            (_, Rejection::NotWaiting { state }) => was(&|facts| may_be(facts, *state)),
            (_, Rejection::GrantedToOther { worker }) => was(&|facts| {
                let unseen =
                    facts.position == Position::Unknown && self.spec(id).limit_key.is_some();
                let by = |granted_to: &str| granted_to == worker.as_str();
                unseen || matches!(&facts.position, Position::Granted { worker, .. } if by(worker))
            }),
            (_, Rejection::LanePaused { lane }) => {
                self.lanes[lane].was(submission.seq, |lane| !lane.hands_out())
            }
            (_, Rejection::LaneFull { lane, limit }) => self.lanes[lane]
                .was(submission.seq, |lane| lane.limit == Some(*limit) && lane.running >= *limit),
            (Command::ClaimGranted(claim), Rejection::NotGranted) => {
                was(&|facts| self.is_not_for(facts, claim))
            }
            (Command::ClaimGranted(_), Rejection::ConcurrencyLimitReached) => {
                self.spec(id).limit_key.is_some()
            }
            (Command::ClaimGranted(_), Rejection::QuotaExceeded { lane }) => {
                let quotas = [QuotaScope::Tenant, QuotaScope::Lane(lane.clone())];
                quotas.iter().any(|scope| self.was_set(submission, scope))
            }
            (
                Command::ClaimGranted(_),
                Rejection::AlreadyTerminal { state: PublicState::Expired },
            ) if was(&|facts| facts.deadline.is_some_and(|it| it <= self.latest)) => true,
            (Command::Revoke(_), Rejection::NotLeased) => {
                was(&|facts| facts.exists() && !facts.ended() && facts.hold().is_none())
            }
            _ => return None,
        })
    }

    fn is_not_for(&self, facts: &Facts, claim: &ClaimGranted) -> bool {
        let by = |granted_to: &str| granted_to == claim.worker.as_str();
        match &facts.position {
            _ if !facts.exists() || facts.ended() => false,
            Position::Granted { worker, until } if matches!(facts.state, State::Waiting { .. }) => {
                !by(worker) || until.is_some_and(|until| until <= self.latest)
            }
            _ => true,
        }
    }
}
