use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::{Fence, Task, TaskId};

use crate::demo::effects::EffectCounts;
use crate::demo::history::{History, TaskEvents};

/// The facts after the demo: the state of the store, and what was done to it.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The expected number of tasks, and of those that fail.
    pub(crate) tasks: usize,
    pub(crate) broken: usize,
    /// Tasks whose first attempt fails, and the one that always fails.
    pub(crate) failing: BTreeSet<TaskId>,
    pub(crate) hopeless: TaskId,
    /// The number of requested tasks, duplicates included.
    pub(crate) requests: usize,
    pub(crate) repeated: RepeatedRequest,
    pub(crate) killed: KilledWorker,
    pub(crate) stalled: StalledWorker,
    pub(crate) history: History,
    pub(crate) records: Vec<Arc<Task>>,
    pub(crate) effects: EffectCounts,
    pub(crate) took: Duration,
}

/// The responses to a duplicate request.
#[derive(Debug)]
pub(crate) struct RepeatedRequest {
    pub(crate) first: TaskId,
    pub(crate) second: TaskId,
    pub(crate) duplicate: bool,
}

/// The killed worker, and its leases.
#[derive(Debug)]
pub(crate) struct KilledWorker {
    pub(crate) worker: String,
    pub(crate) pid: u32,
    pub(crate) held: Vec<Fence>,
}

/// The stalled worker, and the response to its late write.
#[derive(Debug)]
pub(crate) struct StalledWorker {
    pub(crate) worker: String,
    pub(crate) fence: Fence,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// An invariant of the demo.
#[derive(Debug)]
pub(crate) struct Check {
    /// Its stable name, for programs.
    pub(crate) code: &'static str,
    pub(crate) what: &'static str,
    pub(crate) holds: bool,
}

impl Facts {
    pub(crate) fn states(&self) -> BTreeMap<&'static str, usize> {
        let mut states = BTreeMap::new();
        for task in &self.records {
            *states.entry(task.lifecycle.public().as_str()).or_default() += 1;
        }
        states
    }

    fn state(&self, name: &str) -> usize {
        self.states().get(name).copied().unwrap_or_default()
    }

    fn created(&self) -> usize {
        self.history.sum(|events| events.created) as usize
    }

    fn attempts(&self) -> usize {
        self.history.tasks().map(|(_, events)| events.attempts.len()).sum()
    }

    /// Leases of the killed worker that were followed by a claim of another one.
    fn recovered(&self) -> usize {
        self.killed.held.iter().filter(|fence| self.history.recovered(fence)).count()
    }

    /// Effects under the fence that completed the task.
    fn counted(&self) -> usize {
        let counts = |(task, epoch): &&(TaskId, u64)| {
            self.history.of(task).is_some_and(|events| events.completed.contains(epoch))
        };
        self.effects.keys().filter(counts).count()
    }

    fn written(&self) -> usize {
        self.effects.values().map(|times| *times as usize).sum()
    }

    /// The number of claims by worker.
    fn claims(&self) -> BTreeMap<String, usize> {
        let mut claims = BTreeMap::new();
        for (_, events) in self.history.tasks() {
            for (_, worker) in &events.claims {
                *claims.entry(worker.to_string()).or_default() += 1;
            }
        }
        claims
    }

    /// The rows of the table.
    pub(crate) fn rows(&self) -> Vec<(String, usize)> {
        let mut rows = Vec::new();
        let mut row = |what: &str, count: usize| rows.push((what.to_owned(), count));
        row("tasks requested", self.requests);
        row("  answered with the first", self.requests - self.created());
        row("tasks created", self.created());
        for (state, count) in self.states() {
            let dead = if state == "failed" { " (dead letters)" } else { "" };
            row(&format!("  {state}{dead}"), count);
        }
        row("attempts begun", self.attempts());
        row("  followed by a retry", self.history.sum(|events| events.retries) as usize);
        let expired = |events: &TaskEvents| events.expired.len();
        row("leases expired", self.history.tasks().map(|(_, events)| expired(events)).sum());
        row("  lost to the kill", self.killed.held.len());
        row("  of those, claimed again under the next epoch", self.recovered());
        row("late writes rejected as stale", usize::from(self.stalled.code == "stale_fence"));
        row("effects of handlers", self.written());
        row("  under the fence that completed the task", self.counted());
        for (worker, claims) in self.claims() {
            let killed = if worker == self.killed.worker { " (killed)" } else { "" };
            let stalled = if worker == self.stalled.worker { " (stalled)" } else { "" };
            row(&format!("claims by {worker}{killed}{stalled}"), claims);
        }
        rows
    }

    pub(crate) fn checks(&self) -> Vec<Check> {
        let check = |code, what, holds| Check { code, what, holds };
        let broken = self.state("failed") == self.broken;
        vec![
            check("none_lost", "every requested task has ended", self.none_lost()),
            check("none_twice", "no task was settled twice", self.none_twice()),
            check(
                "effects_once",
                "every completed task had its effect once under its fence",
                self.effects_once(),
            ),
            check(
                "kill_recovered",
                "the tasks of the killed worker were leased to others",
                self.kill_recovered(),
            ),
            check(
                "stale_rejected",
                "the late write was rejected and changed nothing",
                self.stale_rejected(),
            ),
            check(
                "duplicate_answered",
                "the duplicate request created one task",
                self.duplicate_answered(),
            ),
            check("broken_failed", "only broken tasks are dead letters", broken),
            check(
                "attempts_bounded",
                "attempts were counted without a gap, and within their limit",
                self.attempts_bounded(),
            ),
            check(
                "retries_planned",
                "tasks that failed at first were retried, and no others",
                self.retries_planned(),
            ),
        ]
    }

    fn none_lost(&self) -> bool {
        let ended = self.records.iter().filter(|task| task.lifecycle.ended_at().is_some()).count();
        self.created() == self.tasks && self.records.len() == self.tasks && ended == self.tasks
    }

    /// By the log, which must agree with the records.
    fn none_twice(&self) -> bool {
        self.records.iter().all(|task| {
            let ended = [task.lifecycle.public().as_str()];
            self.history.of(&task.id).is_some_and(|events| events.endings == ended)
        })
    }

    fn effects_once(&self) -> bool {
        let once = |task: &TaskId, epoch: u64| self.effects.get(&(task.clone(), epoch)) == Some(&1);
        let mut tasks = self.history.tasks();
        tasks.all(|(task, events)| events.completed.iter().all(|epoch| once(task, *epoch)))
            && self.counted() == self.state("completed")
    }

    fn kill_recovered(&self) -> bool {
        let by_others = |fence: &Fence| {
            let events = self.history.of(&fence.task.id);
            let next = events.and_then(|events| events.claimed_by(fence.epoch + 1));
            next.is_some_and(|worker| worker.as_str() != self.killed.worker)
                && events.is_some_and(|events| !events.completed.contains(&fence.epoch))
        };
        let held = &self.killed.held;
        !held.is_empty() && self.recovered() == held.len() && held.iter().all(by_others)
    }

    fn stale_rejected(&self) -> bool {
        let fence = &self.stalled.fence;
        let events = self.history.of(&fence.task.id);
        let by_another = |epochs: &[u64]| matches!(epochs, [epoch] if *epoch != fence.epoch);
        self.stalled.code == "stale_fence"
            && events.is_some_and(|events| by_another(&events.completed))
    }

    fn duplicate_answered(&self) -> bool {
        let RepeatedRequest { first, second, duplicate } = &self.repeated;
        let created = self.history.of(first).map(|events| events.created);
        *duplicate && first == second && created == Some(1)
    }

    fn attempts_bounded(&self) -> bool {
        self.records.iter().all(|task| {
            let counted = self.history.of(&task.id).is_some_and(|events| {
                let numbers = events.attempts.iter().copied();
                numbers.eq(1..=task.attempts)
            });
            let most = task.policy.retry.as_ref().map(|retry| retry.max_attempts);
            let hopeless = task.id == self.hopeless;
            counted
                && most.is_none_or(|most| task.attempts <= most)
                && (!hopeless || Some(task.attempts) == most)
        })
    }

    /// An attempt whose lease expired did not fail.
    fn retries_planned(&self) -> bool {
        let planned = |task: &TaskId, events: &TaskEvents| {
            u32::from(self.failing.contains(task) && events.first_ended())
        };
        self.history.tasks().all(|(task, events)| events.retries == planned(task, events))
    }

    pub(crate) fn json(&self) -> Value {
        let checks: serde_json::Map<String, Value> =
            self.checks().into_iter().map(|c| (c.code.to_owned(), c.holds.into())).collect();
        json!({
            "requests": self.requests,
            "duplicates": self.requests - self.created(),
            "tasks": self.created(),
            "states": self.states(),
            "attempts": self.attempts(),
            "retries": self.history.sum(|events| events.retries),
            "dead_letters": self.state("failed"),
            "killed": {
                "worker": self.killed.worker,
                "pid": self.killed.pid,
                "leases_held": self.killed.held.len(),
                "leases_recovered": self.recovered(),
            },
            "stale_write": { "code": self.stalled.code, "message": self.stalled.message },
            "effects": { "written": self.written(), "counted": self.counted() },
            "claims_by_worker": self.claims(),
            "checks": checks,
            "duration_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use windlass::command::{Claim, Complete, Create, Fail, IdempotencyWindow, NewTask};
    use windlass::{FailureClass, Lifecycle, Readiness, Retry, RetryPolicy, Tenant, Timestamp};
    use windlass_engine::{Config, Engine};
    use windlass_store::{ManualClock, MemoryStore};

    use super::*;

    async fn claim(engine: &Engine, worker: &str) -> Fence {
        let claim = Claim { lease_ms: 1_000, ..Claim::new(worker) };
        let claimed = engine.claim(claim, Duration::ZERO).await.unwrap();
        claimed[0].task.fence()
    }

    async fn complete(engine: &Engine, fence: &Fence) -> Result<(), windlass::Error> {
        engine.submit(Complete { fence: fence.clone(), result: None }).await.map(drop)
    }

    fn key() -> Option<IdempotencyWindow> {
        Some(IdempotencyWindow { key: "order".into(), window_ms: 60_000 })
    }

    /// A demo of five tasks without processes: one is lost to a kill, one to a stall, one is
    /// requested twice, one is broken, and one always fails.
    async fn facts() -> Facts {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let store = MemoryStore::with_clock(clock.clone());
        let config = Config { background: false, ..Config::default() };
        let engine = Engine::with_store(store, config).await.unwrap();
        let ids = ["a-killed", "b-stalled", "c-broken", "d-twice", "f-hopeless"];
        let mut tasks: Vec<NewTask> = ids.map(|id| NewTask::new(id, "k")).into();
        tasks[4].policy.retry = Some(RetryPolicy::fixed(2, 0));
        tasks[0].policy.retry = Some(RetryPolicy::fixed(3, 0));
        tasks[3].idempotency = key();
        let again = NewTask { idempotency: key(), ..NewTask::new("e-again", "k") };
        let tenant = Tenant::default();
        engine.submit(Create { tenant: tenant.clone(), tasks }).await.unwrap();
        let _duplicate = engine.submit(Create::one(again)).await.unwrap();
        let (killed, late) = (claim(&engine, "victim").await, claim(&engine, "sleeper").await);
        clock.advance_ms(2_000);
        engine.sweep().await.unwrap();
        let mut effects = EffectCounts::new();
        for _ in 0..6 {
            let fence = claim(&engine, "worker").await;
            let (class, retry) = match fence.task.id.as_str() {
                "c-broken" => (FailureClass::Permanent, Retry::Never),
                _ => (FailureClass::Transient, Retry::Policy),
            };
            if ["c-broken", "f-hopeless"].contains(&fence.task.id.as_str()) {
                let fail = Fail { fence, class, reason: "no".into(), retry };
                engine.submit(fail).await.unwrap();
            } else {
                complete(&engine, &fence).await.unwrap();
                effects.insert((fence.task.id, fence.epoch), 1);
            }
        }
        let rejection = complete(&engine, &late).await.unwrap_err();
        let mut history = History::default();
        let mut log = engine.subscribe(None).await.unwrap();
        log.read().await.unwrap().iter().for_each(|entry| history.note(entry));
        let records = engine.tasks(&tenant, &Default::default(), None, 100).await.unwrap();
        let (code, message) = (rejection.code().to_owned(), rejection.to_string());
        Facts {
            tasks: 5,
            broken: 2,
            failing: BTreeSet::from(["f-hopeless".into()]),
            hopeless: "f-hopeless".into(),
            requests: 6,
            repeated: RepeatedRequest {
                first: "d-twice".into(),
                second: "d-twice".into(),
                duplicate: true,
            },
            killed: KilledWorker { worker: "victim".into(), pid: 1, held: vec![killed] },
            stalled: StalledWorker { worker: "sleeper".into(), fence: late, code, message },
            history,
            records,
            effects,
            took: Duration::ZERO,
        }
    }

    fn unsound(facts: &Facts) -> String {
        let failed = facts.checks().into_iter().filter(|check| !check.holds);
        failed.map(|check| check.code).collect::<Vec<_>>().join(" ")
    }

    fn with(facts: &mut Facts, task: &str, change: impl FnOnce(&mut Task)) {
        let task = facts.records.iter_mut().find(|record| record.id.as_str() == task).unwrap();
        change(Arc::make_mut(task));
    }

    fn spoil(facts: &mut Facts, task: &str, change: impl FnOnce(&mut TaskEvents)) {
        change(facts.history.0.get_mut(&TaskId::new(task)).unwrap());
    }

    #[tokio::test]
    async fn every_check_holds_and_every_check_can_fail() {
        type Spoil = fn(&mut Facts);
        let table: [(&str, Spoil, &str); 17] = [
            ("nothing", |_| {}, ""),
            ("a record is missing", |f| drop(f.records.remove(0)), "none_lost effects_once"),
            (
                "a task waits",
                |f| {
                    let at = Timestamp::default();
                    let waiting =
                        Lifecycle::Waiting(Readiness { ready_at: at, ..Readiness::default() });
                    with(f, "a-killed", |task| task.lifecycle = waiting);
                },
                "none_lost none_twice effects_once",
            ),
            (
                "a task ended twice",
                |f| spoil(f, "d-twice", |events| events.endings.push("completed".into())),
                "none_twice",
            ),
            ("an effect is missing", |f| drop(f.effects.pop_first()), "effects_once"),
            (
                "an effect came twice",
                |f| f.effects.values_mut().for_each(|times| *times = 2),
                "effects_once",
            ),
            (
                "a lease was not lost",
                |f| spoil(f, "a-killed", |events| events.expired.clear()),
                "kill_recovered",
            ),
            ("no busy worker was killed", |f| f.killed.held.clear(), "kill_recovered"),
            ("the late write was accepted", |f| f.stalled.code = "x".into(), "stale_rejected"),
            (
                "the second request created a second task",
                |f| f.repeated.second = "e-again".into(),
                "duplicate_answered",
            ),
            ("nothing was broken", |f| f.broken = 0, "broken_failed"),
            (
                "an attempt too many",
                |f| {
                    with(f, "a-killed", |task| task.attempts = 4);
                    spoil(f, "a-killed", |events| events.attempts = vec![1, 2, 3, 4]);
                },
                "attempts_bounded",
            ),
            (
                "an attempt missing in the log",
                |f| with(f, "a-killed", |task| task.attempts = 3),
                "attempts_bounded",
            ),
            (
                "a gap between attempts",
                |f| spoil(f, "a-killed", |events| events.attempts = vec![1, 3]),
                "attempts_bounded",
            ),
            (
                "too few attempts of a task that always fails",
                |f| {
                    with(f, "f-hopeless", |task| task.attempts = 1);
                    spoil(f, "f-hopeless", |events| events.attempts = vec![1]);
                },
                "attempts_bounded",
            ),
            (
                "a failure without a retry",
                |f| spoil(f, "f-hopeless", |events| events.retries = 0),
                "retries_planned",
            ),
            (
                "a retry without a failure",
                |f| spoil(f, "d-twice", |events| events.retries = 1),
                "retries_planned",
            ),
        ];
        for (what, change, expected) in table {
            let mut facts = facts().await;
            change(&mut facts);
            assert_eq!(unsound(&facts), expected, "{what}");
        }
    }

    #[tokio::test]
    async fn figures() {
        let found = facts().await.json();
        for (path, expected) in [
            ("/requests", 6),
            ("/duplicates", 1),
            ("/tasks", 5),
            ("/states/completed", 3),
            ("/dead_letters", 2),
            ("/attempts", 8),
            ("/retries", 1),
            ("/killed/leases_recovered", 1),
            ("/effects/counted", 3),
            ("/claims_by_worker/victim", 1),
        ] {
            assert_eq!(found.pointer(path), Some(&json!(expected)), "{path}: {found}");
        }
    }
}
