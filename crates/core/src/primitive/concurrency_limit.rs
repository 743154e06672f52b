use std::collections::BTreeMap;
use std::sync::Arc;

use crate::concurrency_limit::{ConcurrencyLimit, LimitKey, LimitKind, Owner};
use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::name::{Tenant, WorkerId};
use crate::primitive::transition::{is_listable, save_and_wake};
use crate::ready_route::ReadyRoute;
use crate::row::Range;
use crate::task::{Lease, Lifecycle, Readiness, Task, TaskList};
use crate::time::Timestamp;
use crate::world::{Halt, Wake, World, unless_quarantined};

/// The maximum number of tasks that a limit moves at once, since many limits may open together. The
/// rest is due immediately, for the next sweep.
const PAGE: u32 = 32;

/// The maximum number of admitted tasks that are skipped to find the last ones.
const LOOKED_PAST: u32 = 1_000;

/// The maximum number of blocked tasks that are skipped because they cannot be admitted.
const PASSED_OVER: u32 = 32;

/// When to check a limit again that could not move its tasks, because this version cannot read some
/// record.
const POSTPONED_MS: u64 = 60_000;

/// The counter of a limit that a task is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Admitted,
    Running,
}

fn stage(task: &Task) -> Option<Stage> {
    match &task.lifecycle {
        Lifecycle::Blocked(_) => Some(Stage::Waiting),
        Lifecycle::Waiting(_) | Lifecycle::Granted { .. } => Some(Stage::Admitted),
        Lifecycle::Active(_) => Some(Stage::Running),
        _ => None,
    }
}

impl ConcurrencyLimit {
    fn count(&mut self, stage: Option<Stage>) {
        match stage {
            Some(Stage::Waiting) => self.waiting += 1,
            Some(Stage::Admitted) => self.admitted += 1,
            Some(Stage::Running) => self.running += 1,
            None => {}
        }
    }

    fn uncount(&mut self, stage: Option<Stage>) {
        match stage {
            Some(Stage::Waiting) => self.waiting = self.waiting.saturating_sub(1),
            Some(Stage::Admitted) => self.admitted = self.admitted.saturating_sub(1),
            Some(Stage::Running) => self.running = self.running.saturating_sub(1),
            None => {}
        }
    }

    /// The state of an admitted task: in the queue of its lane, or granted to the owner.
    fn inside(&self, turn: Readiness, now: Timestamp) -> Lifecycle {
        match self.owner(now) {
            Some(owner) => {
                Lifecycle::Granted { readiness: turn, worker: owner.worker.clone(), until: None }
            }
            None => Lifecycle::Waiting(turn),
        }
    }

    /// Records the end of a lease. After a lost lease the session has no idle time left.
    fn ended(&mut self, lease: &Lease, lost: bool, now: Timestamp) {
        if self.kind == LimitKind::Affinity {
            if !lost {
                self.touch(now);
            }
            return;
        }
        if let Some(owner) = self.owner.as_mut().filter(|owner| owner.worker == lease.worker) {
            owner.expires_at = if lost { now } else { now.plus_ms(owner.idle_ms) };
        }
    }
}

/// The limit of a task. An absent row has no version to check. If the task is already counted by
/// the limit, the load of the limit predates its insert: [`save`] then inserts it in any case, so
/// that the commit conflicts with the existing row.
fn of_task(
    world: &mut World,
    tenant: &Tenant,
    key: &LimitKey,
    is_counted: bool,
) -> Result<ConcurrencyLimit, Halt> {
    if let Some(known) = world.get::<ConcurrencyLimit>(&key.row_key(tenant))? {
        return Ok((*known).clone());
    }
    if is_counted {
        world.note_missed(key.row_key(tenant));
    }
    Ok(ConcurrencyLimit::new(tenant, key.kind(), key.name()))
}

/// Saves a limit, or deletes it if unused. If not all of its tasks could be moved (`whole` is
/// false), the sweep checks it later, not immediately.
pub(super) fn save(world: &mut World, mut gate: ConcurrencyLimit, whole: bool) -> Result<(), Halt> {
    let now = world.now();
    let key = ConcurrencyLimit::key_of(&gate.tenant, gate.kind, &gate.name);
    let known = world.get::<ConcurrencyLimit>(&key)?;
    gate.due_at = gate.next_due(now);
    if !whole {
        gate.due_at = gate.due_at.map(|due_at| due_at.max(now.plus_ms(POSTPONED_MS)));
    }
    if gate.is_unused() && world.is_missed(&key) {
        world.put::<ConcurrencyLimit>(ConcurrencyLimit { due_at: Some(now), ..gate });
    } else if gate.is_unused() {
        if known.is_some() {
            world.remove(&key);
        }
    } else if known.is_none_or(|known| *known != gate) {
        world.put::<ConcurrencyLimit>(gate);
    }
    Ok(())
}

/// Updates the limit of a task for its change of state. A task that became ready is admitted,
/// granted to the owner of its session, or blocked. The caller runs [`open`] after saving the task.
pub(super) fn pass(
    world: &mut World,
    before: Option<&Task>,
    task: &mut Task,
) -> Result<bool, Halt> {
    let Some(key) = task.limit_key.clone() else { return Ok(false) };
    let (now, was, is) = (world.now(), before.and_then(stage), stage(task));
    if was.is_none() && is.is_none() {
        return Ok(false);
    }
    world.prefetch(ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
    world.prefetch(Lane::key_of(&task.tenant, &task.lane));
    let mut gate = of_task(world, &task.tenant, &key, was.is_some())?;
    gate.uncount(was);
    if let Some(before) = before
        && let Lifecycle::Active(lease) = &before.lifecycle
        && is != Some(Stage::Running)
    {
        gate.ended(lease, is_lost(before, task), now);
    }
    if let Lifecycle::Waiting(turn) = &task.lifecycle {
        let admitted = was == Some(Stage::Admitted) || gate.waiting == 0 && gate.room(now) > 0;
        let turn = turn.clone();
        task.lifecycle = if admitted { gate.inside(turn, now) } else { Lifecycle::Blocked(turn) };
        if let Lifecycle::Granted { worker, .. } = &task.lifecycle {
            let kept = Change::SessionGranted { worker: worker.clone() };
            world.emit(Event::of_task(task, now, kept));
        }
    }
    gate.count(stage(task));
    save(world, gate, true)?;
    Ok(true)
}

/// Whether the lease of a task was lost, not settled.
fn is_lost(before: &Task, task: &Task) -> bool {
    let settled = task.last_settle.as_ref().is_some_and(|last| last.epoch == before.epoch);
    !settled && task.lost_leases > before.lost_leases
}

/// Adjusts the admitted tasks of a limit, in queue order: frees the session of an idle owner,
/// blocks tasks in excess of the limit, and admits the next ones.
pub(crate) fn open(world: &mut World, tenant: &Tenant, key: &LimitKey) -> Result<(), Halt> {
    let Some(known) = world.get::<ConcurrencyLimit>(&key.row_key(tenant))? else { return Ok(()) };
    let (mut gate, now, mut whole) = ((*known).clone(), world.now(), true);
    if gate.is_freed(now) {
        gate.owner = None;
        align(world, &gate, key)?;
    }
    if gate.is_overfull(now) {
        whole &= recall(world, &mut gate, key)?;
    }
    whole &= admit(world, &mut gate, key)?;
    save(world, gate, whole)
}

/// Revokes a session: immediately, or when its running tasks end.
pub(crate) fn release(world: &mut World, gate: &ConcurrencyLimit) -> Result<(), Halt> {
    let (Some(owner), Some(key)) = (&gate.owner, gate.limit_key()) else { return Ok(()) };
    let until = owner.expires_at.min(world.now());
    // An affinity without a holder and without admitted tasks need not be retained.
    let owner = Owner { expires_at: until, idle_ms: 0, ..owner.clone() };
    let owner = Some(owner).filter(|_| gate.kind != LimitKind::Affinity || gate.admitted > 0);
    let freed = ConcurrencyLimit { owner, ..gate.clone() };
    match freed.is_unused() {
        true => return save(world, freed, true),
        false => world.put::<ConcurrencyLimit>(freed),
    }
    open(world, &gate.tenant, &key)
}

/// Revokes up to `most` sessions of a dead worker. Returns whether there may be more.
pub(crate) fn release_sessions_of(
    world: &mut World,
    tenant: &Tenant,
    worker: &WorkerId,
    most: usize,
) -> Result<bool, Halt> {
    let owned =
        world.scan::<ConcurrencyLimit>(&ConcurrencyLimit::owned_by(tenant, worker), most)?;
    let freed = world.each(&owned, |world, gate| {
        let key = ConcurrencyLimit::key_of(&gate.tenant, gate.kind, &gate.name);
        if let Some(gate) = world.get::<ConcurrencyLimit>(&key)? {
            release(world, &gate)?;
        }
        let left = world.get::<ConcurrencyLimit>(&key)?;
        Ok(left.is_none_or(|left| left.owner.is_none()))
    })?;
    // Sessions with running tasks stay in the index: another call would only find them again.
    Ok(owned.len() == most && freed.contains(&true))
}

/// Admits the next tasks. Returns whether as many were admitted as there are free slots.
fn admit(world: &mut World, gate: &mut ConcurrencyLimit, key: &LimitKey) -> Result<bool, Halt> {
    let now = world.now();
    let waiting = u32::try_from(gate.waiting).unwrap_or(u32::MAX);
    let wanted = gate.room(now).min(waiting).min(PAGE);
    if wanted == 0 {
        return Ok(true);
    }
    let heads = heads(world, &gate.tenant, key, wanted)?;
    for head in &heads {
        let Lifecycle::Blocked(turn) = &head.lifecycle else { continue };
        let lifecycle = gate.inside(turn.clone(), now);
        let change = match &lifecycle {
            Lifecycle::Granted { worker, .. } => Change::SessionGranted { worker: worker.clone() },
            _ => Change::Unblocked,
        };
        gate.uncount(Some(Stage::Waiting));
        gate.count(Some(Stage::Admitted));
        world.emit(Event::of_task(head, now, change));
        save_and_wake(world, Task { lifecycle, ..(**head).clone() })?;
    }
    Ok(heads.len() == wanted as usize)
}

/// The first blocked tasks that can be admitted. A few that cannot are skipped.
fn heads(
    world: &mut World,
    tenant: &Tenant,
    key: &LimitKey,
    wanted: u32,
) -> Result<Vec<Arc<Task>>, Halt> {
    let waiting = TaskList::LimitWaiting(key).range(tenant);
    let mut found = Vec::new();
    for most in [wanted, wanted + PASSED_OVER] {
        found = listable(world, &waiting, most)?;
        if found.len() >= wanted as usize {
            break;
        }
    }
    found.truncate(wanted as usize);
    Ok(found)
}

fn listable(world: &mut World, list: &Range, most: u32) -> Result<Vec<Arc<Task>>, Halt> {
    let mut found = world.scan::<Task>(list, most as usize)?;
    for task in &found {
        world.prefetch(ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
        world.prefetch(Lane::key_of(&task.tenant, &task.lane));
    }
    let can = found.iter().map(|task| is_listable(world, task)).collect::<Vec<_>>();
    let mut can = can.into_iter().collect::<Result<Vec<bool>, Halt>>()?.into_iter();
    found.retain(|_| can.next() == Some(true));
    Ok(found)
}

/// Blocks the last admitted tasks that exceed the limit. Returns whether all could be blocked.
fn recall(world: &mut World, gate: &mut ConcurrencyLimit, key: &LimitKey) -> Result<bool, Halt> {
    let now = world.now();
    let kept = ConcurrencyLimit { admitted: 0, ..gate.clone() }.room(now).min(gate.admitted);
    let wanted = (gate.admitted - kept).min(PAGE);
    // Tasks within the limit are skipped, unless they are too many to scan.
    let past = if kept > LOOKED_PAST { 0 } else { kept };
    let inside = world.scan::<Task>(
        &TaskList::LimitAdmitted(key).range(&gate.tenant),
        (past + wanted) as usize,
    )?;
    let mut recalled = 0;
    for task in inside.iter().skip(past as usize) {
        let (Lifecycle::Waiting(turn) | Lifecycle::Granted { readiness: turn, until: None, .. }) =
            &task.lifecycle
        else {
            continue;
        };
        let lifecycle = Lifecycle::Blocked(turn.clone());
        gate.uncount(Some(Stage::Admitted));
        gate.count(Some(Stage::Waiting));
        recalled += 1;
        world.emit(Event::of_task(task, now, Change::BlockedAgain));
        // A claim may have skipped this task and those behind it.
        let (tenant, lane) = (task.tenant.clone(), task.lane.clone());
        world.wake(Wake { tenant, lane, route: Some(task.route.clone()) });
        save_and_wake(world, Task { lifecycle, ..(**task).clone() })?;
    }
    Ok(recalled == wanted)
}

/// Grants the admitted tasks to the owner of the session, or to no worker if it has none.
fn align(world: &mut World, gate: &ConcurrencyLimit, key: &LimitKey) -> Result<(), Halt> {
    if gate.admitted == 0 {
        return Ok(());
    }
    let now = world.now();
    let inside = TaskList::LimitAdmitted(key).range(&gate.tenant);
    for task in listable(world, &inside, gate.admitted)? {
        let (change, turn) = match &task.lifecycle {
            Lifecycle::Granted { readiness: turn, worker, until: None } => {
                (Change::GrantReleased { worker: worker.clone() }, turn)
            }
            Lifecycle::Waiting(turn) => (Change::Unblocked, turn),
            _ => continue,
        };
        let lifecycle = gate.inside(turn.clone(), now);
        let change = match &lifecycle {
            same if *same == task.lifecycle => continue,
            Lifecycle::Granted { worker, .. } => Change::SessionGranted { worker: worker.clone() },
            _ => change,
        };
        world.emit(Event::of_task(&task, now, change));
        save_and_wake(world, Task { lifecycle, ..(*task).clone() })?;
    }
    Ok(())
}

/// Whether the limits of these tasks let a worker start them, in this order.
pub(crate) fn startable(
    world: &mut World,
    tasks: &[Arc<Task>],
    worker: &WorkerId,
) -> Result<Vec<bool>, Halt> {
    let now = world.now();
    for task in tasks {
        if let Some(key) = &task.limit_key {
            world.prefetch(key.row_key(&task.tenant));
        }
    }
    let mut counts: BTreeMap<&LimitKey, u32> = BTreeMap::new();
    let mut may = Vec::with_capacity(tasks.len());
    for task in tasks {
        let Some(key) = &task.limit_key else {
            may.push(true);
            continue;
        };
        let Some(gate) =
            unless_quarantined(world.get::<ConcurrencyLimit>(&key.row_key(&task.tenant)))?
        else {
            may.push(false);
            continue;
        };
        if let Some(gate) = &gate
            && gate.kind.is_owned()
            && gate.admitted > 1
            && gate.owner(now).is_none()
        {
            // The claim grants these to the new owner, too. One row more shows that these are all.
            let inside = TaskList::LimitAdmitted(key).range(&task.tenant);
            world.prefetch_scan(&inside, gate.admitted as usize + 1);
        }
        let count = counts.entry(key).or_default();
        let starts = gate.is_none_or(|gate| {
            gate.may_start(*count + 1, now)
                && gate.owner(now).is_none_or(|owner| owner.worker == *worker)
        });
        *count += u32::from(starts);
        may.push(starts);
    }
    Ok(may)
}

/// Counts a leased task as started. The worker that claims the first task of a session owns it.
pub(crate) fn start(world: &mut World, task: &Task, idle_ms: u64) -> Result<(), Halt> {
    let (Some(key), Lifecycle::Active(lease)) = (&task.limit_key, &task.lifecycle) else {
        return Ok(());
    };
    let now = world.now();
    let mut gate = of_task(world, &task.tenant, key, true)?;
    gate.uncount(Some(Stage::Admitted));
    gate.charge(1, now);
    if gate.kind.is_owned() {
        let worker = lease.worker.clone();
        let changed = gate.owner(now).is_none();
        let active_at = (gate.kind == LimitKind::Affinity).then_some(now);
        gate.owner = Some(Owner { worker, expires_at: now.plus_ms(idle_ms), idle_ms, active_at });
        if changed {
            align(world, &gate, key)?;
        }
    }
    gate.count(Some(Stage::Running));
    save(world, gate, true)
}

/// Records activity for the affinity of a task.
pub(crate) fn touch(world: &mut World, task: &Task) -> Result<(), Halt> {
    let Some(key @ LimitKey::Affinity(_)) = &task.limit_key else { return Ok(()) };
    let mut gate = of_task(world, &task.tenant, key, true)?;
    gate.touch(world.now());
    save(world, gate, true)
}

/// Renews the lock of an affinity, if it has not expired and its holder was active within
/// `idle_ms`. Returns whether it was renewed.
pub(crate) fn renew_affinity(
    world: &mut World,
    gate: &ConcurrencyLimit,
    lock_ms: u64,
    idle_ms: u64,
) -> Result<bool, Halt> {
    let now = world.now();
    let known = world.get::<ConcurrencyLimit>(&ConcurrencyLimit::key_of(
        &gate.tenant,
        gate.kind,
        &gate.name,
    ))?;
    let Some(known) = known.filter(|known| known.kind == LimitKind::Affinity) else {
        return Ok(false);
    };
    let active = |owner: &&Owner| owner.active_at.is_some_and(|at| now < at.plus_ms(idle_ms));
    let Some(owner) = known.owner(now).filter(active) else { return Ok(false) };
    let owner = Some(Owner { expires_at: now.plus_ms(lock_ms), ..owner.clone() });
    save(world, ConcurrencyLimit { owner, ..(*known).clone() }, true)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Cancel, ChangePriority, Claim, ClaimGranted, Complete, Create, Fail, Grant, NewMessage,
        NewTask, Outcome, Post, QuotaScope, Release, Replay, SetQuota, Snooze, Suspend, Sweep,
        WaitChildren,
    };
    use crate::rate::Rate;
    use crate::task::{Condition, FailureClass, PublicState, Retry, Route};
    use crate::testing::{Stage, claim, fence_of, key, lane, new_task, session_claim};

    fn keyed(id: &str) -> NewTask {
        NewTask { limit_key: Some(LimitKey::Concurrency("k".into())), ..new_task(id) }
    }

    fn of_session(id: &str) -> NewTask {
        NewTask { limit_key: Some(LimitKey::Session("s".into())), ..new_task(id) }
    }

    fn with(news: impl IntoIterator<Item = NewTask>) -> Stage {
        let mut stage = Stage::new();
        for new in news {
            stage.must(Create::one(new));
        }
        stage
    }

    fn ids(outcome: Outcome) -> Vec<String> {
        let Outcome::Claimed(tasks) = outcome else { panic!("{outcome:?}") };
        tasks.iter().map(|task| task.id.to_string()).collect()
    }

    fn complete(id: &str, nth: u64) -> Complete {
        Complete { fence: fence_of(id, nth), result: None }
    }

    fn set(stage: &mut Stage, scope: QuotaScope, limit: Option<u32>) {
        stage.must(SetQuota { tenant: Tenant::default(), scope, limit, rate: None });
    }

    fn state(stage: &Stage, id: &str) -> PublicState {
        stage.task(id).unwrap().lifecycle.public()
    }

    #[test]
    fn tasks_of_a_key_run_one_at_a_time_in_queue_order() {
        let low = NewTask { priority: -1, ..keyed("a") };
        let mut stage = with([keyed("b"), low, keyed("c"), keyed("d"), new_task("free")]);
        stage.must(ChangePriority { task: key("d"), priority: 3 });
        assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), ["b", "free"]);
        for (done, next) in [("b", "d"), ("d", "c"), ("c", "a")] {
            assert!(ids(stage.must(claim())).is_empty());
            stage.must(complete(done, 1));
            assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), [next]);
        }
        stage.must(complete("a", 1));
        assert_eq!(stage.gates(), [], "an unused limit is deleted");
    }

    /// The end of a lease frees a slot; the end of a blocked task does not.
    #[test]
    fn every_end_of_a_lease_unblocks_the_next_task() {
        type End = fn(&mut Stage);
        let fence = || fence_of("a", 1);
        let rows: [(&str, End); 7] = [
            ("complete", |stage| drop(stage.must(complete("a", 1)))),
            ("fail", |stage| {
                let (class, retry) = (FailureClass::Transient, Retry::Policy);
                let fence = fence_of("a", 1);
                stage.must(Fail { fence, class, reason: String::new(), retry });
            }),
            ("delay", |stage| {
                stage.must(Snooze { fence: fence_of("a", 1), delay_ms: 9 });
            }),
            ("release", |stage| drop(stage.must(Release { fence: fence_of("a", 1) }))),
            ("cancel", |stage| {
                stage.must(Cancel { task: key("a"), reason: String::new() });
            }),
            ("expiry of the lease", |stage| {
                stage.later(30_000);
                stage.must(Sweep::default());
            }),
            ("deadline", |stage| {
                stage.later(20_000);
                stage.must(Sweep::default());
            }),
        ];
        for (what, end) in rows {
            let deadline_ms = (what == "deadline").then_some(20_000);
            let mut stage = with([NewTask { deadline_ms, ..keyed("a") }, keyed("b"), keyed("c")]);
            assert_eq!(ids(stage.must(claim())), ["a"]);
            assert_eq!(stage.task("a").unwrap().fence(), fence());
            stage.must(Cancel { task: key("b"), reason: String::new() });
            assert_eq!(state(&stage, "c"), PublicState::Blocked, "{what}");
            stage.later(1);
            end(&mut stage);
            assert_eq!(state(&stage, "c"), PublicState::Waiting, "{what}");
            let gate = &stage.gates()[0];
            let left = u64::from(what == "release" || what.starts_with("expiry"));
            assert_eq!((gate.running, gate.admitted, gate.waiting), (0, 1, left), "{what}");
        }
    }

    #[test]
    fn an_admitted_task_that_ends_frees_its_slot() {
        let dated = NewTask { deadline_ms: Some(1_000), ..keyed("a") };
        let mut stage = with([dated, keyed("b"), keyed("c")]);
        stage.later(1_000);
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "a"), PublicState::Expired);
        stage.must(Cancel { task: key("b"), reason: String::new() });
        assert_eq!(ids(stage.must(claim())), ["c"]);
        stage.must(Replay { task: key("a"), generation: 0 });
        assert_eq!(state(&stage, "a"), PublicState::Blocked, "it is behind earlier tasks");
    }

    #[test]
    fn a_rate_limit_unblocks_when_its_window_passes() {
        let mut stage = with([keyed("a"), keyed("b"), keyed("c")]);
        let (scope, rate) = (QuotaScope::Key("k".into()), Rate { starts: 2, window_ms: 10_000 });
        let tenant = Tenant::default();
        stage.must(SetQuota { tenant, scope, limit: None, rate: Some(rate) });
        assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), ["a", "b"]);
        stage.must(complete("a", 1));
        assert_eq!(state(&stage, "c"), PublicState::Blocked, "its start still counts");
        let due_at = stage.gates()[0].due_at.expect("it is due");
        stage.now = due_at;
        let Outcome::Swept { swept: 1, .. } = stage.must(Sweep::default()) else { panic!() };
        assert_eq!(ids(stage.must(claim())), ["c"]);
    }

    #[test]
    fn a_session_stays_with_its_owner() {
        let mut stage = with(["a", "b", "c"].map(of_session));
        assert!(ids(stage.must(claim())).is_empty(), "it does not offer sessions");
        assert_eq!(ids(stage.must(session_claim("w"))), ["a"]);
        assert!(ids(stage.must(session_claim("v"))).is_empty());
        stage.must(complete("a", 1));
        assert!(ids(stage.must(session_claim("v"))).is_empty(), "the next one is granted to w");
        assert_eq!(ids(stage.must(session_claim("w"))), ["b"]);
        stage.later(20_000);
        stage.must(complete("b", 1));
        stage.later(59_999);
        stage.must(Sweep::default());
        assert!(ids(stage.must(session_claim("v"))).is_empty());
        stage.later(1);
        stage.must(Sweep::default());
        assert_eq!(ids(stage.must(session_claim("v"))), ["c"], "w was idle for too long");
        stage.must(complete("c", 1));
        stage.later(60_000);
        stage.must(Sweep::default());
        assert_eq!(stage.gates(), []);
    }

    #[test]
    fn a_session_with_a_higher_limit_moves_with_its_owner() {
        let mut stage = Stage::new();
        set(&mut stage, QuotaScope::Session("s".into()), Some(3));
        for id in ["a", "b", "c", "d"] {
            stage.must(Create::one(of_session(id)));
        }
        assert_eq!(ids(stage.must(session_claim("w"))), ["a"]);
        assert!(ids(stage.must(Claim { limit: 9, ..session_claim("v") })).is_empty());
        assert_eq!(ids(stage.must(session_claim("w"))), ["b"]);
        stage.later(30_000);
        stage.must(Sweep::default());
        let taken = ids(stage.must(Claim { limit: 9, ..session_claim("v") }));
        assert_eq!(taken, ["c", "d", "a"], "both leases of w expired");
        assert_eq!(stage.gates()[0].owner.as_ref().unwrap().worker, "v".into());
    }

    #[test]
    fn an_owner_that_loses_one_of_two_leases_stays_the_owner() {
        let mut stage = Stage::new();
        set(&mut stage, QuotaScope::Session("s".into()), Some(2));
        for id in ["a", "b", "c"] {
            stage.must(Create::one(of_session(id)));
        }
        stage.must(Claim { lease_ms: 1_000, ..session_claim("w") });
        stage.must(session_claim("w"));
        stage.later(1_000);
        stage.must(Sweep::default());
        assert!(ids(stage.must(session_claim("v"))).is_empty(), "b runs on w");
        stage.must(complete("b", 1));
        assert_eq!(ids(stage.must(session_claim("w"))), ["c"]);
    }

    #[test]
    fn a_late_settle_does_not_end_the_session() {
        let mut new = of_session("a");
        new.policy.accept_expired_lease = true;
        let mut stage = with([new, of_session("b")]);
        stage.must(session_claim("w"));
        stage.later(40_000);
        stage.must(complete("a", 1));
        assert!(ids(stage.must(session_claim("v"))).is_empty());
        assert_eq!(ids(stage.must(session_claim("w"))), ["b"]);
    }

    #[test]
    fn a_granted_task_waits_for_a_paused_lane_and_its_capabilities() {
        let mut demanding = of_session("b");
        demanding.capabilities.insert("gpu".into());
        let mut stage = with([of_session("a"), demanding]);
        stage.must(session_claim("w"));
        stage.must(complete("a", 1));
        assert!(ids(stage.must(session_claim("w"))).is_empty(), "w has no gpu");
        let mut able = session_claim("w");
        able.offer.capabilities.insert("gpu".into());
        let set = |state| {
            let tenant = Tenant::default();
            crate::command::SetLaneState { tenant, lane: lane(), state }
        };
        stage.must(set(crate::lane::LaneState::Paused));
        assert!(ids(stage.must(able.clone())).is_empty());
        stage.must(set(crate::lane::LaneState::Active));
        assert_eq!(ids(stage.must(able)), ["b"]);
    }

    #[test]
    fn an_unreadable_limit_blocks_only_its_own_tasks() {
        let mut stage = with([keyed("a"), keyed("b"), new_task("c")]);
        let garbled = ConcurrencyLimit::key_of(&Tenant::default(), LimitKind::Concurrency, "k");
        stage.must(Claim { limit: 1, ..claim() });
        stage.garble(&garbled);
        let refused = stage.run(complete("a", 1)).unwrap_err();
        assert_eq!(refused.code(), "quarantined");
        assert_eq!(ids(stage.must(claim())), ["c"]);
        stage.later(30_000);
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "a"), PublicState::Active, "it waits for a newer version");
        assert_eq!(state(&stage, "c"), PublicState::Waiting);
        let mut stage = with([keyed("a"), new_task("c")]);
        stage.garble(&garbled);
        assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), ["c"]);
    }

    #[test]
    fn unreadable_tasks_are_skipped_by_admission() {
        let elsewhere = NewTask { lane: "other".into(), ..keyed("c") };
        let mut stage = with([keyed("a"), keyed("b"), elsewhere, keyed("d")]);
        stage.must(claim());
        stage.garble(&key("b").row_key());
        let queue = ReadyRoute::key_of(&Tenant::default(), &"other".into(), &Route::default());
        stage.must(Create::one(NewTask { lane: "other".into(), ..new_task("e") }));
        stage.garble(&queue);
        stage.must(complete("a", 1));
        assert_eq!(ids(stage.must(claim())), ["d"]);
        stage.must(complete("d", 1));
        let gate = &stage.gates()[0];
        assert_eq!((gate.waiting, gate.running, gate.admitted), (2, 0, 0));
        assert_eq!(gate.due_at, Some(stage.now.plus_ms(POSTPONED_MS)), "not immediately");
    }

    #[test]
    fn an_unreadable_quota_allows_nothing() {
        let mut stage = with([new_task("a"), new_task("b")]);
        set(&mut stage, QuotaScope::Tenant, Some(5));
        stage.must(claim());
        stage.garble(&ConcurrencyLimit::key_of(&Tenant::default(), LimitKind::Tenant, ""));
        assert!(ids(stage.must(claim())).is_empty());
        assert_eq!(stage.run(complete("a", 1)).unwrap_err().code(), "quarantined");
        stage.later(30_000);
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "a"), PublicState::Active);
    }

    /// A grant from before another worker owned the session does not override the owner.
    #[test]
    fn a_grant_does_not_split_a_session() {
        let mut stage = Stage::new();
        set(&mut stage, QuotaScope::Session("s".into()), Some(2));
        for id in ["a", "b"] {
            stage.must(Create::one(of_session(id)));
        }
        stage.must(Grant { task: key("b"), worker: "v".into(), ttl_ms: 5_000 });
        assert_eq!(ids(stage.must(session_claim("w"))), ["a"]);
        assert!(ids(stage.must(session_claim("v"))).is_empty());
        assert_eq!(stage.run(ClaimGranted::new("b", "v")).unwrap_err().code(), "gate_shut");
        stage.later(5_000);
        stage.must(Sweep::default());
        assert_eq!(ids(stage.must(session_claim("w"))), ["b"], "it is granted to its owner");
    }

    /// A waiting parent frees its slot, and needs one again when its child ends.
    #[test]
    fn a_parent_and_its_child_share_a_key() {
        let mut stage = with([keyed("a")]);
        stage.must(claim());
        stage.must(Create::one(NewTask { parent: Some("a".into()), ..keyed("b") }));
        stage.must(Create::one(keyed("c")));
        stage.must(WaitChildren { fence: fence_of("a", 1) });
        assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), ["b"]);
        stage.later(1);
        stage.must(complete("b", 1));
        assert_eq!(state(&stage, "a"), PublicState::Blocked, "c was blocked earlier");
        assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), ["c"]);
        stage.must(complete("c", 1));
        assert_eq!(state(&stage, "a"), PublicState::Resumable);
        let Outcome::Claimed(tasks) = stage.must(claim()) else { panic!() };
        assert_eq!((tasks[0].id.as_str(), tasks[0].attempts), ("a", 1), "its attempt continues");
        stage.must(complete("a", 2));
        assert_eq!(stage.gates(), []);
    }

    /// The end of a child resumes its parent while the rate limit allows another start.
    #[test]
    fn a_blocked_child_that_ends_is_not_admitted() {
        let mut stage = with([keyed("a")]);
        let (scope, rate) = (QuotaScope::Key("k".into()), Rate { starts: 1, window_ms: 10_000 });
        let tenant = Tenant::default();
        stage.must(SetQuota { tenant, scope, limit: None, rate: Some(rate) });
        stage.must(claim());
        stage.must(Create::one(NewTask { parent: Some("a".into()), ..keyed("b") }));
        stage.must(Create::one(keyed("c")));
        stage.must(WaitChildren { fence: fence_of("a", 1) });
        stage.later(20_000);
        stage.must(Cancel { task: key("b"), reason: String::new() });
        let gate = &stage.gates()[0];
        assert_eq!((gate.running, gate.admitted, gate.waiting), (0, 1, 1));
        assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), ["c"]);
        stage.must(complete("c", 1));
        stage.later(20_000);
        stage.must(Sweep::default());
        assert_eq!(ids(stage.must(claim())), ["a"]);
    }

    /// A suspended task frees its slot, and needs one again when it is resumed.
    #[test]
    fn a_suspended_task_frees_its_slot() {
        let mut stage = with([keyed("a"), keyed("b")]);
        stage.must(claim());
        stage.must(Suspend::new(fence_of("a", 1), Condition::signal("go")));
        assert_eq!(ids(stage.must(claim())), ["b"]);
        let (tenant, messages) = (Tenant::default(), vec![NewMessage::new("a", "go", "ops")]);
        stage.must(Post { tenant, messages });
        assert_eq!(state(&stage, "a"), PublicState::Blocked);
        stage.must(complete("b", 1));
        assert_eq!(state(&stage, "a"), PublicState::Resumable);
        assert_eq!(ids(stage.must(claim())), ["a"]);
    }

    #[test]
    fn tenants_do_not_share_a_concurrency_key() {
        let mut stage = with([keyed("a")]);
        stage.must(Create { tenant: "other".into(), tasks: vec![keyed("a")] });
        assert_eq!(ids(stage.must(claim())), ["a"]);
        assert_eq!(ids(stage.must(Claim { tenant: "other".into(), ..claim() })), ["a"]);
    }
}
