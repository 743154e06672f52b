//! Concurrency limits, quotas and sessions: leases and starts never exceed a limit, a session has
//! one owner at a time, and no task stays blocked by a limit with capacity.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::command::{QuotaScope, SetQuota};
use windlass_core::{
    Change, Command, ConcurrencyLimit, CountedByQuota, FailureClass, LaneName, LimitKey, LogEvent,
    Rate, Rejection, RowKey, Tenant, Timestamp, Value,
};
use windlass_store::MemoryStore;

use crate::model::facts::{Facts, Hold, Position, State, Track};
use crate::model::log::Step;
use crate::model::outcome::Submission;
use crate::model::record::one;
use crate::model::state::Model;
use crate::script::TaskSpec;
use crate::violation::{Breach, Kind, breach};

/// Limits set by an operator: concurrent leases, and starts per window.
type QuotaLimits = (Option<u32>, Option<Rate>);

#[derive(Debug, Default)]
pub(super) struct ConcurrencyLimits {
    set: BTreeMap<QuotaScope, Track<QuotaLimits>>,
    starts: BTreeMap<QuotaScope, Starts>,
    owners: BTreeMap<String, Owner>,
    /// Sessions that an operator released at some time.
    released: BTreeSet<String>,
}

/// Times of the starts that count against a rate limit.
#[derive(Debug, Default)]
struct Starts {
    at: Vec<Timestamp>,
    /// How much longer than the window a start may count.
    slack_ms: u64,
    /// Until then, starts from before the model observed the limit may count.
    uncertain_until: Timestamp,
}

#[derive(Debug)]
struct Owner {
    worker: String,
    /// While no task of the session runs, the worker owns it until then.
    until: Timestamp,
    idle_ms: u64,
}

impl ConcurrencyLimits {
    fn limits(&self, scope: &QuotaScope) -> QuotaLimits {
        self.set.get(scope).map_or((None, None), |track| *track.last())
    }

    fn is_set(&self, scope: &QuotaScope) -> bool {
        self.limits(scope) != (None, None)
    }

    /// Forgets the sessions of a worker that may be deleted; other workers may take them.
    pub(super) fn disown(&mut self, worker: &str) {
        self.owners.retain(|_, owner| owner.worker != worker);
    }

    /// The limit of concurrent leases.
    fn limit(&self, scope: &QuotaScope) -> Option<u32> {
        let one_at_a_time = matches!(scope, QuotaScope::Concurrency(_) | QuotaScope::Session(_));
        match self.is_set(scope) {
            true => self.limits(scope).0,
            false => one_at_a_time.then_some(1),
        }
    }

    /// The number of counted starts at a time, at least and at most.
    fn started(&self, scope: &QuotaScope, now: Timestamp) -> (u32, u32) {
        let (Some(rate), Some(starts)) = (self.limits(scope).1, self.starts.get(scope)) else {
            return (0, 0);
        };
        let count = |more_ms: u64| {
            let counts = |at: &&Timestamp| now < at.plus_ms(rate.window_ms + more_ms);
            u32::try_from(starts.at.iter().filter(counts).count()).unwrap_or(u32::MAX)
        };
        (count(0), count(starts.slack_ms))
    }
}

fn scope_of(key: &LimitKey) -> QuotaScope {
    match key {
        LimitKey::Concurrency(name) => QuotaScope::Concurrency(name.clone()),
        LimitKey::Session(name) => QuotaScope::Session(name.clone()),
        LimitKey::Affinity(_) => unreachable!("scripts have no affinities here"),
    }
}

/// How much longer than its window a start may count.
fn slack_ms(rate: Option<Rate>) -> u64 {
    rate.map_or(0, |rate| rate.window_ms / 32 + 1)
}

impl Model {
    pub(super) fn quota_set(&mut self, entry: &LogEvent, scope: &QuotaScope, limits: QuotaLimits) {
        let was = self.concurrency.limits(scope).1;
        let starts = self.concurrency.starts.entry(scope.clone()).or_default();
        match (was, limits.1) {
            (Some(was), Some(is)) => {
                // Starts that had expired under the old rate may count or not.
                starts.at.retain(|at| entry.at < at.plus_ms(was.window_ms));
                starts.slack_ms = starts.slack_ms.max(slack_ms(Some(is)));
                starts.uncertain_until = entry.at.plus_ms(is.window_ms + starts.slack_ms);
            }
            (_, is) => *starts = Starts { slack_ms: slack_ms(is), ..Starts::default() },
        }
        let track =
            self.concurrency.set.entry(scope.clone()).or_insert_with(|| Track::new((None, None)));
        track.push(entry.seq, limits);
    }

    /// Sets the position of a task that has just become ready.
    pub(super) fn set_position(&self, at: &Step<'_>, was: &Facts, is: &mut Facts) {
        let waits = |facts: &Facts| matches!(facts.state, State::Waiting { .. });
        // A late settle of a lost lease ends the grant of the ready task.
        if waits(is) && (!waits(was) || is.settled != was.settled) {
            let limited = self.spec(at.id).limit_key.is_some();
            is.position = if limited { Position::Unknown } else { Position::Queued };
        }
    }

    /// Checks that a task is admitted, blocked again, or granted to the owner of its session.
    pub(super) fn position_changed(
        &self,
        at: &Step<'_>,
        facts: &mut Facts,
        change: &Change,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        let waits = matches!(facts.state, State::Waiting { .. });
        let was = facts.position.clone();
        facts.position = match (change, &was) {
            _ if !waits || spec.limit_key.is_none() => {
                return breach(Kind::IllegalMove, "it does not wait for a concurrency limit");
            }
            (Change::Unblocked, Position::Blocked | Position::Unknown) => Position::Queued,
            (
                Change::BlockedAgain,
                Position::Queued | Position::Unknown | Position::Granted { until: None, .. },
            ) => Position::Blocked,
            (Change::SessionGranted { worker }, _) => {
                Position::Granted { worker: worker.to_string(), until: None }
            }
            (
                Change::GrantReleased { worker },
                Position::Granted { worker: granted_to, until: None },
            ) if granted_to == worker.as_str() => Position::Queued,
            _ => return breach(Kind::IllegalMove, format!("its position is {was:?}")),
        };
        if was == Position::Blocked {
            self.check_line(at, facts, spec)?;
        }
        Ok(())
    }

    /// Checks that no task that was blocked by the same limit all the time precedes the admitted
    /// one.
    fn check_line(&self, at: &Step<'_>, facts: &Facts, spec: &TaskSpec) -> Result<(), Breach> {
        let rank = |facts: &Facts| match facts.state {
            State::Waiting { since, .. } => Some((-i64::from(facts.priority), since)),
            _ => None,
        };
        let own = rank(facts);
        for (id, track) in self.tasks.iter().filter(|(id, _)| *id != at.id) {
            let before = |other: &Facts| {
                other.position == Position::Blocked
                    && rank(other).is_some_and(|rank| (Some(rank), id) < (own, at.id))
            };
            if self.spec(id).limit_key == spec.limit_key && track.was_always(self.view, before) {
                return breach(Kind::Order, format!("{id} precedes it"));
            }
        }
        Ok(())
    }

    fn holds(&self, counts: impl Fn(&TaskSpec, &Hold) -> bool) -> u32 {
        let held = self.present().filter(|(id, facts)| {
            let hold = facts.hold();
            hold.is_some_and(|hold| counts(self.spec(id), hold))
        });
        u32::try_from(held.count()).unwrap_or(u32::MAX)
    }

    /// The number of leases that a limit or quota counts.
    fn running(&self, scope: &QuotaScope) -> u32 {
        self.holds(|spec, hold| match scope {
            QuotaScope::Lane(name) => {
                hold.metered.lane && name.as_str() == crate::script::LANES[spec.lane]
            }
            QuotaScope::Tenant => hold.metered.tenant,
            _ => spec.limit_key.as_ref().is_some_and(|key| scope_of(key) == *scope),
        })
    }

    /// Checks a start: the concurrency limit and the quotas of lane and tenant allow one more
    /// lease and one more start. Returns the quotas that count it.
    pub(super) fn passes(
        &mut self,
        at: &Step<'_>,
        facts: &Facts,
        spec: &TaskSpec,
        worker: &str,
    ) -> Result<CountedByQuota, Breach> {
        match &facts.position {
            Position::Queued | Position::Unknown => {}
            Position::Granted { worker: granted_to, .. } if granted_to == worker => {}
            other => return breach(Kind::ConcurrencyLimit, format!("its position is {other:?}")),
        }
        let (lane, tenant) = (QuotaScope::Lane(at.lane.clone()), QuotaScope::Tenant);
        let metered = CountedByQuota {
            lane: self.concurrency.is_set(&lane),
            tenant: self.concurrency.is_set(&tenant),
        };
        let strict = metered.tenant && !self.may_miss_quota(metered);
        let quotas = [(lane, metered.lane), (tenant, strict)];
        let quotas = quotas.into_iter().filter(|(_, is_set)| *is_set).map(|(scope, _)| scope);
        for scope in spec.limit_key.iter().map(scope_of).chain(quotas) {
            let (running, limit) = (self.running(&scope) + 1, self.concurrency.limit(&scope));
            if limit.is_some_and(|limit| running > limit) {
                return breach(
                    Kind::ConcurrencyLimit,
                    format!("{running} at once of {limit:?}: {scope:?}"),
                );
            }
            let Some(rate) = self.concurrency.limits(&scope).1 else { continue };
            let started = self.concurrency.started(&scope, self.latest).0 + 1;
            if started > rate.limit {
                return breach(
                    Kind::ConcurrencyLimit,
                    format!("{started} starts of {rate:?}: {scope:?}"),
                );
            }
            // A batch with an earlier time counts with those committed before it.
            let starts = &mut self.concurrency.starts.entry(scope).or_default().at;
            let last = starts.last().copied();
            starts.push(last.map_or(at.at, |last| last.max(at.at)));
        }
        Ok(metered)
    }

    /// Whether a claim may have begun before its tenant had a quota. Such a claim is not counted.
    pub(super) fn may_miss_quota(&self, metered: CountedByQuota) -> bool {
        let unset = |limits: &QuotaLimits| *limits == (None, None);
        let track = self.concurrency.set.get(&QuotaScope::Tenant);
        metered.tenant && track.is_some_and(|track| track.was(self.view, unset))
    }

    /// Checks that no other worker owns the session of a started task. The worker then owns it.
    pub(super) fn owns(
        &mut self,
        at: &Step<'_>,
        spec: &TaskSpec,
        worker: &str,
    ) -> Result<(), Breach> {
        let Some(LimitKey::Session(name)) = &spec.limit_key else { return Ok(()) };
        let of_other = |id: &windlass_core::TaskId, epoch| {
            self.claims.get(&(id.clone(), epoch)).is_some_and(|seen| seen.worker != worker)
        };
        for (id, facts) in
            self.present().filter(|(id, _)| self.spec(id).limit_key == spec.limit_key)
        {
            if facts.hold().is_some_and(|hold| of_other(id, hold.epoch)) {
                return breach(
                    Kind::ConcurrencyLimit,
                    format!("{id} of its session runs elsewhere"),
                );
            }
        }
        let owner = self.concurrency.owners.get(name).filter(|owner| owner.worker != worker);
        // A batch with an earlier time may commit after one that released the session.
        if let Some(owner) = owner.filter(|owner| self.latest < owner.until)
            && !self.concurrency.released.contains(name)
            && !self.workers.may_be_deregistered(&owner.worker)
        {
            return breach(Kind::ConcurrencyLimit, format!("its session belongs to {owner:?}"));
        }
        let idle_ms = self.offers.get(worker).map_or(0, |claim| claim.session_idle_ms);
        let (worker, until) = (worker.to_owned(), at.at.plus_ms(idle_ms));
        self.concurrency.owners.insert(name.clone(), Owner { worker, until, idle_ms });
        Ok(())
    }

    /// Handles the end of a lease of a session. A worker that lost the lease loses the session.
    pub(super) fn count_owner(&mut self, at: &Step<'_>, was: &Facts, change: &Change) {
        let Some(LimitKey::Session(name)) = &self.spec(at.id).limit_key else { return };
        let ends = was.hold().filter(|_| {
            !matches!(
                change,
                Change::Begun { .. }
                    | Change::Renewed { .. }
                    | Change::Progressed { .. }
                    | Change::PriorityChanged { .. }
                    | Change::Signalled { .. }
                    | Change::WaitpointCreated { .. }
                    | Change::EffectClaimed { .. }
                    | Change::EffectSettled { .. }
            )
        });
        let Some(epoch) = ends.map(|hold| hold.epoch) else { return };
        let lost = match change {
            Change::LeaseLost { .. } => true,
            Change::Failed { class, .. } => *class == FailureClass::Crash,
            _ => false,
        };
        let holder = self.claims.get(&(at.id.clone(), epoch)).map(|seen| seen.worker.clone());
        if let Some(owner) = self.concurrency.owners.get_mut(&name.clone())
            && Some(&owner.worker) == holder.as_ref()
        {
            owner.until = if lost { at.at } else { at.at.plus_ms(owner.idle_ms) };
        }
    }

    /// Records that an operator releases a session.
    pub(super) fn session_release_submitted(&mut self, session: &str) {
        self.concurrency.released.insert(session.to_owned());
    }

    /// Compares the counts of a limit, and checks that no task is blocked without reason.
    pub(super) fn compare_concurrency_limit(
        &self,
        memory: &MemoryStore,
        key: &RowKey,
    ) -> Result<(), Breach> {
        let Some(scope) = scope_of_row(key) else { return Ok(()) };
        let record = one::<ConcurrencyLimit>(memory, key.clone());
        let count_at = |is_at: &dyn Fn(&Position) -> bool| {
            let here = self.present().filter(|(id, facts)| {
                let own =
                    self.spec(id).limit_key.as_ref().is_some_and(|key| scope_of(key) == scope);
                own && matches!(facts.state, State::Waiting { .. }) && is_at(&facts.position)
            });
            u32::try_from(here.count()).unwrap_or(u32::MAX)
        };
        let waiting = count_at(&|position| *position == Position::Blocked);
        let admitted = count_at(&|position| *position != Position::Blocked);
        let running = self.running(&scope);
        let stored = record
            .as_ref()
            .map_or((0, 0, 0), |record| (record.blocked, record.admitted, record.running));
        if stored != (u64::from(waiting), admitted, running) {
            let what = format!("{waiting} are blocked, {admitted} are admitted, {running} run");
            return breach(Kind::ConcurrencyLimit, format!("{record:?}, but {what}"));
        }
        let used = admitted + running;
        let (limit, rate) = (self.concurrency.limit(&scope), self.concurrency.limits(&scope).1);
        // A released session waits until its running tasks have ended.
        let owner = record.as_ref().and_then(|record| record.owner.as_ref());
        let released = running > 0 && owner.is_some_and(|owner| owner.idle_ms == 0);
        if waiting == 0 || released || limit.is_some_and(|limit| used >= limit) {
            return Ok(());
        }
        let uncertain =
            self.concurrency.starts.get(&scope).is_some_and(|it| self.now < it.uncertain_until);
        let started = self.concurrency.started(&scope, self.now).1 + admitted;
        let closed = uncertain || rate.is_some_and(|rate| started >= rate.limit);
        // The next admission follows in a separate commit, due immediately.
        let due_at = record.as_ref().and_then(|record| record.due_at);
        let now = self.now.max(self.logged_at);
        match closed && admitted > 0 || due_at.is_some_and(|due_at| closed || due_at <= now) {
            true => Ok(()),
            false => {
                let what = format!("{waiting} are blocked by {record:?}, which has capacity");
                breach(Kind::ConcurrencyLimit, format!("{what} at {:?}", self.now))
            }
        }
    }

    /// Whether a quota had the requested limits.
    pub(super) fn is_set(&self, submission: &Submission<'_>, set: &SetQuota) -> bool {
        let wanted = (set.limit, set.rate);
        match self.concurrency.set.get(&set.scope) {
            Some(track) => track.was(submission.seq, |limits| *limits == wanted),
            None => wanted == (None, None),
        }
    }

    /// Whether a quota was set at some time since the command was submitted.
    pub(super) fn was_set(&self, submission: &Submission<'_>, scope: &QuotaScope) -> bool {
        let set = |limits: &QuotaLimits| *limits != (None, None);
        self.concurrency.set.get(scope).is_some_and(|track| track.was(submission.seq, set))
    }

    pub(super) fn may_reject_quota(
        &self,
        submission: &Submission<'_>,
        set: &SetQuota,
        rejection: &Rejection,
    ) -> bool {
        let QuotaScope::Lane(name) = &set.scope else { return false };
        *rejection == Rejection::LaneNotFound
            && self.lanes[name].was(submission.seq, |lane| !lane.exists)
    }

    /// The commands that remove quotas with a limit of zero.
    pub(crate) fn lift_zero_quotas(&self) -> Vec<Command> {
        let shut = self.concurrency.set.iter().filter(|(_, track)| track.last().0 == Some(0));
        let lift = shut.map(|(scope, _)| SetQuota {
            tenant: Tenant::default(),
            scope: scope.clone(),
            limit: None,
            rate: None,
        });
        lift.map(Command::from).collect()
    }
}

/// The scope of a limit's record.
fn scope_of_row(key: &RowKey) -> Option<QuotaScope> {
    let [_, Value::Text(kind), Value::Text(name)] = &key.values[..] else { return None };
    Some(match &**kind {
        "concurrency" => QuotaScope::Concurrency(name.to_string()),
        "session" => QuotaScope::Session(name.to_string()),
        "lane" => QuotaScope::Lane(LaneName::new(&**name)),
        _ => QuotaScope::Tenant,
    })
}
