//! Records, compared with the state that the log gives.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_core::{
    ChangeSet, Lane, LaneName, Lifecycle, LimitKey, PayloadKey, ReadyRoute, Route, RowKey,
    SESSIONS, StoredRecord, SuspendedAttempt, Table, Task, TaskId, TaskKey, Tenant, Value,
    read_row,
};
use windlass_store::{MemoryStore, Query, Store};

use crate::model::external_runtime::is_external_runtime;
use crate::model::facts::{Content, Facts, PausedAttempt, Position, State};
use crate::model::log::result_of;
use crate::model::state::Model;
use crate::ready::ready;
use crate::script::{CAPABILITY, LANES, TaskSpec};
use crate::violation::{Breach, Kind, breach};

/// Prefixes of the key scopes of requests and of rate limiter charges.
pub(super) const REQUESTS: &str = "request/";
pub(super) const SPENT: &str = "spend/";

/// An ended task as it was when it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frozen {
    execution: u32,
    lifecycle: Lifecycle,
    results: Vec<u32>,
}

impl Model {
    /// Compares the tasks that a commit wrote, of every tenant, with the log alone.
    pub(super) fn compare_with_log(
        &mut self,
        memory: &MemoryStore,
        changes: &ChangeSet,
    ) -> Result<(), Breach> {
        let inserts = changes.inserts.iter().map(|row| &row.key);
        let updates = changes.updates.iter().map(|update| &update.row.key);
        let deletes = changes.deletes.iter().map(|(key, _)| key);
        let tasks = inserts.chain(updates).chain(deletes).filter(|key| key.table == Table::Task);
        for key in tasks {
            let (Some(Value::Text(tenant)), Some(id)) = (key.values.first(), second_text(key))
            else {
                continue;
            };
            let task = one::<Task>(memory, key.clone());
            let named = TaskKey::new(&Tenant::new(&**tenant), &id);
            let checked = self.fold.check(&named, task.as_deref());
            checked.or_else(|what| breach(Kind::RecordDiffers, what))?;
        }
        Ok(())
    }

    /// Compares the records that a commit wrote.
    pub(super) fn compare(
        &mut self,
        memory: &MemoryStore,
        changes: &ChangeSet,
    ) -> Result<(), Breach> {
        let inserts = changes.inserts.iter().map(|row| &row.key);
        let updates = changes.updates.iter().map(|update| &update.row.key);
        let deletes = changes.deletes.iter().map(|(key, _)| key);
        let mut unlisted = false;
        let (mut admissions, mut families, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        let (mut mailboxes, mut workers) = (BTreeSet::new(), Vec::new());
        let (mut effects, mut limiters) = (Vec::new(), Vec::new());
        for key in inserts.chain(updates).chain(deletes).filter(|key| !is_elsewhere(key)) {
            match (key.table, last_text(key)) {
                (Table::Task, Some(id)) => {
                    self.compare_task(memory, &TaskId::new(id))?;
                    mailboxes.insert(TaskId::new(id));
                    unlisted = true;
                }
                (Table::Lane, Some(name)) => self.compare_lane(memory, &LaneName::new(name))?,
                (Table::ReadyRoute, _) => unlisted = true,
                (Table::Admission, _) => admissions.push(key),
                (Table::Effect, _) => effects.push(key),
                (Table::Limiter, _) => limiters.push(key),
                (Table::ConcurrencyLimit, _) => limits.push(key),
                (Table::Worker, Some(id)) => workers.push(id.to_owned()),
                (Table::Children, Some(id)) => families.push(TaskId::new(id)),
                (Table::Message | Table::Mailbox, _) => mailboxes.extend(second_text(key)),
                (Table::Waitpoint, _) => self.compare_waitpoint(memory, key)?,
                (Table::Keyring, _) => self.compare_keyring(memory, key),
                _ => {}
            }
        }
        self.compare_requests(memory, &admissions, &effects, &limiters)?;
        // After the tasks, which show what the keys refer to.
        admissions.into_iter().try_for_each(|key| self.compare_key(memory, key))?;
        self.check_keyed()?;
        limits.into_iter().try_for_each(|key| self.compare_concurrency_limit(memory, key))?;
        workers.into_iter().try_for_each(|id| self.compare_worker(memory, id))?;
        families.iter().try_for_each(|id| self.compare_children(memory, id))?;
        mailboxes.iter().try_for_each(|id| self.compare_mail(memory, id))?;
        if unlisted { self.check_listed(memory) } else { Ok(()) }
    }

    /// Compares the records of requests, effects and rate limiters that a commit wrote.
    fn compare_requests(
        &mut self,
        memory: &MemoryStore,
        keys: &[&RowKey],
        effects: &[&RowKey],
        limiters: &[&RowKey],
    ) -> Result<(), Breach> {
        let of = |scope: &'static str| {
            let own = move |key: &&&RowKey| {
                let scoped =
                    |value: &Value| matches!(value, Value::Text(text) if text.starts_with(scope));
                key.values.iter().any(scoped)
            };
            keys.iter().filter(own)
        };
        for key in of(REQUESTS) {
            self.compare_request(memory, key)?;
        }
        for key in of(SPENT) {
            self.compare_spend(memory, key)?;
        }
        self.check_growth()?;
        for key in limiters {
            self.compare_limiter(memory, key)?;
        }
        effects.iter().try_for_each(|key| self.compare_effect(memory, key))?;
        self.find_unrecorded_calls();
        Ok(())
    }

    /// Compares all records.
    pub(crate) fn compare_all(&mut self, memory: &MemoryStore) -> Result<(), Breach> {
        for id in self.of_id.keys().cloned().collect::<Vec<_>>() {
            self.compare_task(memory, &id)?;
            self.compare_result(memory, &id)?;
            self.compare_mail(memory, &id)?;
            self.compare_children(memory, &id)?;
        }
        for name in LANES {
            self.compare_lane(memory, &name.into())?;
        }
        self.check_listed(memory)?;
        let tables = memory.snapshot();
        let owned: BTreeSet<&TaskId> = self.present().map(|(id, _)| id).collect();
        let own = |key: &PayloadKey| key.tenant == Tenant::default();
        let unowned = tables.payloads().filter(|(key, _)| own(key) && !owned.contains(&key.task));
        let (answers, others): (Vec<_>, Vec<_>) =
            unowned.map(|(key, _)| key).partition(|key| key.slot.as_str() == "effect");
        if let Some(key) = others.first() {
            return breach(Kind::RecordDiffers, format!("{key:?} has no owner"));
        }
        let (answers, answered) = (answers.len(), self.answered_calls());
        if answers != answered {
            let what = format!("{answers} answers are stored for {answered} calls");
            return breach(Kind::RecordDiffers, what);
        }
        Ok(())
    }

    fn compare_task(&mut self, memory: &MemoryStore, id: &TaskId) -> Result<(), Breach> {
        let key = TaskKey::new(&Tenant::default(), id).row_key();
        let task = one::<Task>(memory, key);
        if task.is_some() {
            self.learn_variant(memory, id)?;
        }
        if let Some(task) = &task {
            self.learn_suspension(id, task)?;
        }
        let track = self.tasks.get_mut(id).expect("scripts create no other tasks");
        let Some(task) = task else {
            if track.last().exists() {
                return breach(Kind::RecordDiffers, format!("{id} is missing: {:?}", track.last()));
            }
            self.frozen.remove(id);
            return Ok(());
        };
        track.amend(|facts| learn(facts, &task));
        let facts = track.last();
        if !agrees(facts, &task, &self.specs[self.of_id[id]]) {
            let what = format!("{id} is {task:?}, but the log gives {facts:?}");
            return breach(Kind::RecordDiffers, what);
        }
        if !facts.ended() {
            self.frozen.remove(id);
            return Ok(());
        }
        let Task { execution, lifecycle, results, .. } = (*task).clone();
        let frozen = Frozen { execution, lifecycle, results };
        match self.frozen.get(id).filter(|known| known.execution == execution) {
            Some(known) if *known != frozen => {
                breach(Kind::EndedChanged, format!("{id} was {known:?} and is {frozen:?}"))
            }
            Some(_) => Ok(()),
            None => {
                self.frozen.insert(id.clone(), frozen);
                Ok(())
            }
        }
    }

    fn compare_result(&self, memory: &MemoryStore, id: &TaskId) -> Result<(), Breach> {
        let facts = self.facts(id);
        let Some(epoch) = facts.settled.filter(|_| facts.ended()) else { return Ok(()) };
        let fenced = (id.clone(), epoch);
        let Some(Content::Complete(known)) = &self.settles[&fenced].content else { return Ok(()) };
        if facts.public() != Some(windlass_core::PublicState::Completed) {
            return Ok(());
        }
        let found = result_of(memory, &fenced, facts.execution);
        if found != *known {
            return breach(Kind::EndedChanged, format!("the result of {id}: {known:?}, {found:?}"));
        }
        Ok(())
    }

    fn compare_lane(&self, memory: &MemoryStore, name: &LaneName) -> Result<(), Breach> {
        let lane = one::<Lane>(memory, Lane::key_of(&Tenant::default(), name));
        let facts = self.lanes[name].last();
        let agrees = match &lane {
            None => !facts.exists,
            Some(lane) => {
                let stored = lane.concurrency.map(|lane| (lane.limit, lane.running));
                let counted = facts.counts.then_some((facts.limit, facts.running));
                lane.state == facts.state && stored == counted
            }
        };
        if agrees {
            return Ok(());
        }
        breach(Kind::RecordDiffers, format!("lane {lane:?}, but the log gives {facts:?}"))
    }

    /// Checks that every ready task is in the directory, where a claim finds it.
    fn check_listed(&self, memory: &MemoryStore) -> Result<(), Breach> {
        for (id, facts) in self.present() {
            if matches!(facts.state, State::Waiting { .. }) && facts.position == Position::Queued {
                let spec = self.spec(id);
                let (lane, route) = (LANES[spec.lane].into(), route(spec));
                let key = ReadyRoute::key_of(&Tenant::default(), &lane, &route);
                if one::<ReadyRoute>(memory, key).is_none() {
                    return breach(Kind::Unlisted, format!("{id} in lane {lane}"));
                }
            }
        }
        Ok(())
    }
}

fn route(spec: &TaskSpec) -> Route {
    let of_session = matches!(spec.limit_key, Some(LimitKey::Session(_)));
    let special = spec.special.then(|| CAPABILITY.to_owned());
    let sessions = of_session.then(|| SESSIONS.to_owned());
    Route::new(&special.into_iter().chain(sessions).collect(), None)
}

/// Whether a record is judged apart from those of tasks.
fn is_elsewhere(key: &RowKey) -> bool {
    is_of_workflows(key) || is_external_runtime(key)
}

/// Whether a record is judged with the workflows.
pub(super) fn is_of_workflows(key: &RowKey) -> bool {
    matches!(key.values.first(), Some(Value::Text(tenant)) if &**tenant == crate::workflow::TENANT)
}

/// The task that a record belongs to.
fn second_text(key: &RowKey) -> Option<TaskId> {
    match key.values.get(1) {
        Some(Value::Text(text)) => Some(TaskId::new(&**text)),
        _ => None,
    }
}

fn last_text(key: &RowKey) -> Option<&str> {
    match key.values.last() {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

pub(super) fn one<R: StoredRecord>(memory: &MemoryStore, key: RowKey) -> Option<Arc<R>> {
    let rows = ready(memory.query(&Query::one(key))).expect("memory does not fail");
    let read = |row: &windlass_core::StoredRow| read_row::<R>(row.schema, &row.body);
    rows.first().map(|row| read(row).expect("this version wrote it"))
}

/// Learns what only records show: the first epoch, and whether a task is blocked.
fn learn(facts: &mut Facts, task: &Task) {
    if facts.exists() && facts.epoch.is_none() {
        facts.epoch = Some(task.epoch);
    }
    if let (State::Active(hold), Lifecycle::Active(lease)) = (&mut facts.state, &task.lifecycle)
        && hold.may_be_unmetered
    {
        (hold.metered.tenant, hold.may_be_unmetered) = (lease.counted_by_quota.tenant, false);
    }
    if facts.position == Position::Unknown {
        facts.position = match task.lifecycle {
            Lifecycle::Waiting(_) => Position::Queued,
            Lifecycle::Blocked(_) if task.limit_key.is_some() => Position::Blocked,
            _ => Position::Unknown,
        };
    }
}

/// Whether the attempt to resume equals the stored one.
fn is_same_attempt(
    facts: &Facts,
    paused: Option<&PausedAttempt>,
    stored: Option<&SuspendedAttempt>,
) -> bool {
    let stored = stored.map(|stored| (stored.number, stored.began_at, stored.timeout_left_ms));
    paused.map(|paused| (facts.attempts, paused.began_at, paused.left_ms)) == stored
}

/// Whether the position of a ready task equals the stored one.
fn is_at(position: &Position, stored: &Lifecycle) -> bool {
    match (position, stored) {
        (Position::Queued, Lifecycle::Waiting(_)) | (Position::Blocked, Lifecycle::Blocked(_)) => {
            true
        }
        (
            Position::Granted { worker, until },
            Lifecycle::Granted { worker: stored, until: end, .. },
        ) => worker.as_str() == stored.as_str() && until == end,
        _ => false,
    }
}

fn agrees(facts: &Facts, task: &Task, spec: &TaskSpec) -> bool {
    let state = match (&facts.state, &task.lifecycle) {
        (State::Active(hold), Lifecycle::Active(lease)) => {
            let run = lease.attempt.as_ref().map(|run| (run.began_at, run.timeout_at));
            hold.began_at.map(|began_at| (began_at, hold.over_at)) == run
                && hold.resumed == lease.resumed
                && hold.registered == lease.registered
                && hold.counted == lease.counted_by_lane_limit
                && hold.metered == lease.counted_by_quota
                && hold.expires_at == lease.expires_at
        }
        (
            State::Waiting { since, lost, paused },
            Lifecycle::Waiting(readiness)
            | Lifecycle::Blocked(readiness)
            | Lifecycle::Granted { readiness, .. },
        ) => {
            is_at(&facts.position, &task.lifecycle)
                && *since == readiness.ready_at
                && *lost == readiness.lost_epoch
                && is_same_attempt(facts, paused.as_ref(), readiness.suspended_attempt.as_ref())
        }
        (State::Suspended(suspension), Lifecycle::Suspended(stored)) => {
            suspension.since == stored.since
                && suspension.condition.as_ref() == Some(&stored.condition)
                && suspension.timeout == stored.timeout
                && suspension.escalated == stored.escalated_at.is_some()
                && is_same_attempt(facts, Some(&suspension.paused), Some(&stored.suspended_attempt))
        }
        (
            State::Gathering { since, paused },
            Lifecycle::WaitingChildren { since: stored, suspended_attempt },
        ) => since == stored && is_same_attempt(facts, Some(paused), Some(suspended_attempt)),
        (
            State::Delayed { until, paused },
            Lifecycle::Delayed { until: stored, suspended_attempt, .. },
        ) => until == stored && is_same_attempt(facts, paused.as_ref(), suspended_attempt.as_ref()),
        _ => facts.public() == Some(task.lifecycle.public()),
    };
    state
        && facts.kind.as_ref() == Some(&task.kind)
        && facts.execution == task.execution
        && facts.epoch == Some(task.epoch)
        && facts.attempts == task.attempts
        && facts.lost_leases == task.lost_leases
        && facts.priority == task.priority
        && facts.deadline == task.deadline
        && facts.parent == task.parent
        && spec.limit_key == task.limit_key
        && facts.has_children == task.has_children
}
