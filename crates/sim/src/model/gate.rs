//! Gates, quotas and sessions: never more at once and never more in a time than they let through,
//! one owner of a session at a time, and nobody behind a gate that is open.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::command::{QuotaScope, SetQuota};
use windlass_core::{
    Change, Command, ConcurrencyLimit, FailureClass, LaneName, LimitKey, LogEvent, Metered, Rate,
    Rejection, RowKey, Tenant, Timestamp, Value,
};
use windlass_store::MemoryStore;

use crate::model::answer::Asked;
use crate::model::facts::{Facts, Hold, Stand, State, Track};
use crate::model::log::Step;
use crate::model::record::one;
use crate::model::state::Model;
use crate::script::TaskSpec;
use crate::violation::{Breach, Kind, breach};

/// What an operator set: how many at once, and how many starts in a time.
type Limits = (Option<u32>, Option<Rate>);

#[derive(Debug, Default)]
pub(super) struct Gates {
    set: BTreeMap<QuotaScope, Track<Limits>>,
    starts: BTreeMap<QuotaScope, Starts>,
    owners: BTreeMap<String, Owner>,
    /// Sessions that an operator took from their owners at some time.
    released: BTreeSet<String>,
}

/// When tasks were started that count against a rate.
#[derive(Debug, Default)]
struct Starts {
    at: Vec<Timestamp>,
    /// By so much more than the window a start may count.
    slack_ms: u64,
    /// Until then older starts may count that nobody knows of.
    murky_until: Timestamp,
}

#[derive(Debug)]
struct Owner {
    worker: String,
    /// While nothing of the session runs, it is the worker's until then.
    until: Timestamp,
    idle_ms: u64,
}

impl Gates {
    fn limits(&self, scope: &QuotaScope) -> Limits {
        self.set.get(scope).map_or((None, None), |track| *track.last())
    }

    fn is_set(&self, scope: &QuotaScope) -> bool {
        self.limits(scope) != (None, None)
    }

    /// A worker may be gone: others may take its sessions.
    pub(super) fn disown(&mut self, worker: &str) {
        self.owners.retain(|_, owner| owner.worker != worker);
    }

    /// How many may run at once.
    fn limit(&self, scope: &QuotaScope) -> Option<u32> {
        let one_at_a_time = matches!(scope, QuotaScope::Key(_) | QuotaScope::Session(_));
        match self.is_set(scope) {
            true => self.limits(scope).0,
            false => one_at_a_time.then_some(1),
        }
    }

    /// How many starts count at a time, at least and at most.
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

fn scope_of(gate: &LimitKey) -> QuotaScope {
    match gate {
        LimitKey::Concurrency(name) => QuotaScope::Key(name.clone()),
        LimitKey::Session(name) => QuotaScope::Session(name.clone()),
        LimitKey::Affinity(_) => unreachable!("nobody wishes for one here"),
    }
}

/// How much longer than a window a start may count.
fn slack_ms(rate: Option<Rate>) -> u64 {
    rate.map_or(0, |rate| rate.window_ms / 32 + 1)
}

impl Model {
    pub(super) fn quota_set(&mut self, entry: &LogEvent, scope: &QuotaScope, limits: Limits) {
        let was = self.gates.limits(scope).1;
        let starts = self.gates.starts.entry(scope.clone()).or_default();
        match (was, limits.1) {
            (Some(was), Some(is)) => {
                // What had passed under the old rate may be forgotten, or not.
                starts.at.retain(|at| entry.at < at.plus_ms(was.window_ms));
                starts.slack_ms = starts.slack_ms.max(slack_ms(Some(is)));
                starts.murky_until = entry.at.plus_ms(is.window_ms + starts.slack_ms);
            }
            (_, is) => *starts = Starts { slack_ms: slack_ms(is), ..Starts::default() },
        }
        let track = self.gates.set.entry(scope.clone()).or_insert_with(|| Track::new((None, None)));
        track.push(entry.seq, limits);
    }

    /// Where a task stands that has just come to wait for its turn.
    pub(super) fn takes_place(&self, at: &Step<'_>, was: &Facts, is: &mut Facts) {
        let waits = |facts: &Facts| matches!(facts.state, State::Waiting { .. });
        // A late settle of a lost lease ends the grant of the task that waits.
        if waits(is) && (!waits(was) || is.settled != was.settled) {
            let gated = self.spec(at.id).gate.is_some();
            is.stand = if gated { Stand::Unknown } else { Stand::Queue };
        }
    }

    /// A gate lets a task through, or takes it back, or keeps it for the owner of its session.
    pub(super) fn moves(
        &self,
        at: &Step<'_>,
        facts: &mut Facts,
        change: &Change,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        let waits = matches!(facts.state, State::Waiting { .. });
        let was = facts.stand.clone();
        facts.stand = match (change, &was) {
            _ if !waits || spec.gate.is_none() => {
                return breach(Kind::IllegalMove, "it does not wait at a gate");
            }
            (Change::Unblocked, Stand::Behind | Stand::Unknown) => Stand::Queue,
            (
                Change::BlockedAgain,
                Stand::Queue | Stand::Unknown | Stand::Kept { until: None, .. },
            ) => Stand::Behind,
            (Change::SessionGranted { worker }, _) => {
                Stand::Kept { worker: worker.to_string(), until: None }
            }
            (Change::GrantReleased { worker }, Stand::Kept { worker: kept, until: None })
                if kept == worker.as_str() =>
            {
                Stand::Queue
            }
            _ => return breach(Kind::IllegalMove, format!("it stands at {was:?}")),
        };
        if was == Stand::Behind {
            self.check_line(at, facts, spec)?;
        }
        Ok(())
    }

    /// Nobody who has stood behind the same gate all the time stands before the one it lets
    /// through.
    fn check_line(&self, at: &Step<'_>, facts: &Facts, spec: &TaskSpec) -> Result<(), Breach> {
        let rank = |facts: &Facts| match facts.state {
            State::Waiting { since, .. } => Some((-i64::from(facts.priority), since)),
            _ => None,
        };
        let own = rank(facts);
        for (id, track) in self.tasks.iter().filter(|(id, _)| *id != at.id) {
            let before = |other: &Facts| {
                other.stand == Stand::Behind
                    && rank(other).is_some_and(|rank| (Some(rank), id) < (own, at.id))
            };
            if self.spec(id).gate == spec.gate && track.was_always(self.view, before) {
                return breach(Kind::Order, format!("{id} stands before it"));
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

    /// How many leases a gate or a quota counts.
    fn running(&self, scope: &QuotaScope) -> u32 {
        self.holds(|spec, hold| match scope {
            QuotaScope::Lane(name) => {
                hold.metered.lane && name.as_str() == crate::script::LANES[spec.lane]
            }
            QuotaScope::Tenant => hold.metered.tenant,
            _ => spec.gate.as_ref().is_some_and(|gate| scope_of(gate) == *scope),
        })
    }

    /// A task is started: its gate and the quotas of its lane and its tenant let one more run, and
    /// one more start. Says which quotas count it.
    pub(super) fn passes(
        &mut self,
        at: &Step<'_>,
        facts: &Facts,
        spec: &TaskSpec,
        worker: &str,
    ) -> Result<Metered, Breach> {
        match &facts.stand {
            Stand::Queue | Stand::Unknown => {}
            Stand::Kept { worker: kept, .. } if kept == worker => {}
            other => return breach(Kind::Gate, format!("it stands at {other:?}")),
        }
        let (lane, tenant) = (QuotaScope::Lane(at.lane.clone()), QuotaScope::Tenant);
        let metered =
            Metered { lane: self.gates.is_set(&lane), tenant: self.gates.is_set(&tenant) };
        let strict = metered.tenant && !self.may_miss_quota(metered);
        let quotas = [(lane, metered.lane), (tenant, strict)];
        let quotas = quotas.into_iter().filter(|(_, is_set)| *is_set).map(|(scope, _)| scope);
        for scope in spec.gate.iter().map(scope_of).chain(quotas) {
            let (running, limit) = (self.running(&scope) + 1, self.gates.limit(&scope));
            if limit.is_some_and(|limit| running > limit) {
                return breach(Kind::Gate, format!("{running} at once of {limit:?}: {scope:?}"));
            }
            let Some(rate) = self.gates.limits(&scope).1 else { continue };
            let started = self.gates.started(&scope, self.latest).0 + 1;
            if started > rate.starts {
                return breach(Kind::Gate, format!("{started} starts of {rate:?}: {scope:?}"));
            }
            // A batch of an earlier time counts with those that came before it.
            let starts = &mut self.gates.starts.entry(scope).or_default().at;
            let last = starts.last().copied();
            starts.push(last.map_or(at.at, |last| last.max(at.at)));
        }
        Ok(metered)
    }

    /// Whether a claim may have begun before its tenant had a quota. It goes on as if it had come
    /// before that.
    pub(super) fn may_miss_quota(&self, metered: Metered) -> bool {
        let unset = |limits: &Limits| *limits == (None, None);
        let track = self.gates.set.get(&QuotaScope::Tenant);
        metered.tenant && track.is_some_and(|track| track.was(self.view, unset))
    }

    /// A task of a session is started: nobody else owns it. Whoever starts it does from then on.
    pub(super) fn owns(
        &mut self,
        at: &Step<'_>,
        spec: &TaskSpec,
        worker: &str,
    ) -> Result<(), Breach> {
        let Some(LimitKey::Session(name)) = &spec.gate else { return Ok(()) };
        let of_other = |id: &windlass_core::TaskId, epoch| {
            self.claims.get(&(id.clone(), epoch)).is_some_and(|seen| seen.worker != worker)
        };
        for (id, facts) in self.present().filter(|(id, _)| self.spec(id).gate == spec.gate) {
            if facts.hold().is_some_and(|hold| of_other(id, hold.epoch)) {
                return breach(Kind::Gate, format!("{id} of the same session runs elsewhere"));
            }
        }
        let owner = self.gates.owners.get(name).filter(|owner| owner.worker != worker);
        // A batch of an earlier time may come after one that let go of the session.
        if let Some(owner) = owner.filter(|owner| self.latest < owner.until)
            && !self.gates.released.contains(name)
            && !self.staff.may_retire(&owner.worker)
        {
            return breach(Kind::Gate, format!("its session belongs to {owner:?}"));
        }
        let idle_ms = self.offers.get(worker).map_or(0, |claim| claim.session_idle_ms);
        let (worker, until) = (worker.to_owned(), at.at.plus_ms(idle_ms));
        self.gates.owners.insert(name.clone(), Owner { worker, until, idle_ms });
        Ok(())
    }

    /// The lease of a task of a session ends. A worker that was lost loses the session.
    pub(super) fn count_owner(&mut self, at: &Step<'_>, was: &Facts, change: &Change) {
        let Some(LimitKey::Session(name)) = &self.spec(at.id).gate else { return };
        let ends = was.hold().filter(|_| {
            !matches!(
                change,
                Change::Begun { .. }
                    | Change::Renewed { .. }
                    | Change::Progressed { .. }
                    | Change::PriorityChanged { .. }
                    | Change::Signaled { .. }
                    | Change::WaitpointCreated { .. }
                    | Change::EffectClaimed { .. }
                    | Change::EffectSettled { .. }
            )
        });
        let Some(epoch) = ends.map(|hold| hold.epoch) else { return };
        let lost = match change {
            Change::LeaseExpired { .. } => true,
            Change::Failed { class, .. } => *class == FailureClass::Crash,
            _ => false,
        };
        let holder = self.claims.get(&(at.id.clone(), epoch)).map(|seen| seen.worker.clone());
        if let Some(owner) = self.gates.owners.get_mut(&name.clone())
            && Some(&owner.worker) == holder.as_ref()
        {
            owner.until = if lost { at.at } else { at.at.plus_ms(owner.idle_ms) };
        }
    }

    /// An operator takes a session from whoever owns it.
    pub(super) fn lets_go(&mut self, session: &str) {
        self.gates.released.insert(session.to_owned());
    }

    /// Compares what a gate counts, and looks whether somebody waits who need not.
    pub(super) fn compare_gate(&self, memory: &MemoryStore, key: &RowKey) -> Result<(), Breach> {
        let Some(scope) = scope_of_row(key) else { return Ok(()) };
        let gate = one::<ConcurrencyLimit>(memory, key.clone());
        let at_gate = |stands: &dyn Fn(&Stand) -> bool| {
            let here = self.present().filter(|(id, facts)| {
                let own = self.spec(id).gate.as_ref().is_some_and(|gate| scope_of(gate) == scope);
                own && matches!(facts.state, State::Waiting { .. }) && stands(&facts.stand)
            });
            u32::try_from(here.count()).unwrap_or(u32::MAX)
        };
        let waiting = at_gate(&|stand| *stand == Stand::Behind);
        let admitted = at_gate(&|stand| *stand != Stand::Behind);
        let running = self.running(&scope);
        let kept =
            gate.as_ref().map_or((0, 0, 0), |gate| (gate.waiting, gate.admitted, gate.running));
        if kept != (u64::from(waiting), admitted, running) {
            let what = format!("{waiting} wait, {admitted} are let through, {running} run");
            return breach(Kind::Gate, format!("{gate:?}, where {what}"));
        }
        let taken = admitted + running;
        let (limit, rate) = (self.gates.limit(&scope), self.gates.limits(&scope).1);
        // A session that was taken from its owner waits for the end of what runs there.
        let owner = gate.as_ref().and_then(|gate| gate.owner.as_ref());
        let released = running > 0 && owner.is_some_and(|owner| owner.idle_ms == 0);
        if waiting == 0 || released || limit.is_some_and(|limit| taken >= limit) {
            return Ok(());
        }
        let murky = self.gates.starts.get(&scope).is_some_and(|it| self.now < it.murky_until);
        let started = self.gates.started(&scope, self.now).1 + admitted;
        let closed = murky || rate.is_some_and(|rate| started >= rate.starts);
        // What lets one more start does so in the next commit, and is due at once.
        let due_at = gate.as_ref().and_then(|gate| gate.due_at);
        let now = self.now.max(self.logged_at);
        match closed && admitted > 0 || due_at.is_some_and(|due_at| closed || due_at <= now) {
            true => Ok(()),
            false => {
                let what = format!("{waiting} wait behind {gate:?}, which is open");
                breach(Kind::Gate, format!("{what} at {:?}", self.now))
            }
        }
    }

    /// Whether a quota was as it was asked to be.
    pub(super) fn is_set(&self, asked: &Asked<'_>, set: &SetQuota) -> bool {
        let wanted = (set.limit, set.rate);
        match self.gates.set.get(&set.scope) {
            Some(track) => track.was(asked.seq, |limits| *limits == wanted),
            None => wanted == (None, None),
        }
    }

    /// Whether there was a quota at some moment since this was asked.
    pub(super) fn was_set(&self, asked: &Asked<'_>, scope: &QuotaScope) -> bool {
        let set = |limits: &Limits| *limits != (None, None);
        self.gates.set.get(scope).is_some_and(|track| track.was(asked.seq, set))
    }

    pub(super) fn may_refuse_quota(
        &self,
        asked: &Asked<'_>,
        set: &SetQuota,
        rejection: &Rejection,
    ) -> bool {
        let QuotaScope::Lane(name) = &set.scope else { return false };
        *rejection == Rejection::LaneNotFound
            && self.lanes[name].was(asked.seq, |lane| !lane.exists)
    }

    /// What lifts the quotas that let nobody through.
    pub(crate) fn shut_gates(&self) -> Vec<Command> {
        let shut = self.gates.set.iter().filter(|(_, track)| track.last().0 == Some(0));
        let lift = shut.map(|(scope, _)| SetQuota {
            tenant: Tenant::default(),
            scope: scope.clone(),
            limit: None,
            rate: None,
        });
        lift.map(Command::from).collect()
    }
}

/// What the record of a gate is about.
fn scope_of_row(key: &RowKey) -> Option<QuotaScope> {
    let [_, Value::Text(kind), Value::Text(name)] = &key.values[..] else { return None };
    Some(match &**kind {
        "key" => QuotaScope::Key(name.to_string()),
        "session" => QuotaScope::Session(name.to_string()),
        "lane" => QuotaScope::Lane(LaneName::new(&**name)),
        _ => QuotaScope::Tenant,
    })
}
