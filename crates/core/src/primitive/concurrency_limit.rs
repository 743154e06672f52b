use std::collections::BTreeMap;
use std::sync::Arc;

use crate::concurrency_limit::{ConcurrencyLimit, LimitKey, LimitKind, Owner};
use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::name::{Tenant, WorkerId};
use crate::primitive::transition::{is_route_readable, save_and_wake};
use crate::ready_route::ReadyRoute;
use crate::row::Range;
use crate::task::{Lease, Lifecycle, Readiness, Task, TaskList};
use crate::time::Timestamp;
use crate::world::{Halt, Wake, World, unless_quarantined};

/// The maximum number of tasks that a limit moves at once, since many limits may open together. The
/// rest is due immediately, for the next sweep.
const MAX_MOVED: u32 = 32;

/// The maximum number of admitted tasks that are skipped to find the last ones.
const MAX_SCANNED_ADMITTED: u32 = 1_000;

/// The maximum number of blocked tasks that are skipped because they cannot be admitted.
const MAX_SKIPPED: u32 = 32;

/// When to check a limit again that could not move its tasks, because this version cannot read some
/// record.
const RECHECK_MS: u64 = 60_000;

/// The counter of a limit that a task is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counter {
    Blocked,
    Admitted,
    Running,
}

fn counter_of(task: &Task) -> Option<Counter> {
    match &task.lifecycle {
        Lifecycle::Blocked(_) => Some(Counter::Blocked),
        Lifecycle::Waiting(_) | Lifecycle::Granted { .. } => Some(Counter::Admitted),
        Lifecycle::Active(_) => Some(Counter::Running),
        _ => None,
    }
}

impl ConcurrencyLimit {
    fn count(&mut self, counter: Option<Counter>) {
        match counter {
            Some(Counter::Blocked) => self.blocked += 1,
            Some(Counter::Admitted) => self.admitted += 1,
            Some(Counter::Running) => self.running += 1,
            None => {}
        }
    }

    fn uncount(&mut self, counter: Option<Counter>) {
        match counter {
            Some(Counter::Blocked) => self.blocked = self.blocked.saturating_sub(1),
            Some(Counter::Admitted) => self.admitted = self.admitted.saturating_sub(1),
            Some(Counter::Running) => self.running = self.running.saturating_sub(1),
            None => {}
        }
    }

    /// The state of an admitted task: in the queue of its lane, or granted to the owner.
    fn admitted_state(&self, readiness: Readiness, now: Timestamp) -> Lifecycle {
        match self.owner(now) {
            Some(owner) => {
                Lifecycle::Granted { readiness, worker: owner.worker.clone(), until: None }
            }
            None => Lifecycle::Waiting(readiness),
        }
    }

    /// Records the end of a lease. After a lost lease the session has no idle time left.
    fn on_lease_end(&mut self, lease: &Lease, lost: bool, now: Timestamp) {
        if self.kind == LimitKind::Affinity {
            if !lost {
                self.mark_active(now);
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
fn load_or_default(
    world: &mut World,
    tenant: &Tenant,
    key: &LimitKey,
    is_counted: bool,
) -> Result<ConcurrencyLimit, Halt> {
    if let Some(limit) = world.get::<ConcurrencyLimit>(&key.row_key(tenant))? {
        return Ok((*limit).clone());
    }
    if is_counted {
        world.mark_stale_absence(key.row_key(tenant));
    }
    Ok(ConcurrencyLimit::new(tenant, key.kind(), key.name()))
}

/// Saves a limit, or deletes it if unused. If not all of its tasks could be moved (`moved_all` is
/// false), the sweep checks it later, not immediately.
pub(super) fn save(
    world: &mut World,
    mut limit: ConcurrencyLimit,
    moved_all: bool,
) -> Result<(), Halt> {
    let now = world.now();
    let key = ConcurrencyLimit::key_of(&limit.tenant, limit.kind, &limit.name);
    let stored = world.get::<ConcurrencyLimit>(&key)?;
    limit.due_at = limit.next_due(now);
    if !moved_all {
        limit.due_at = limit.due_at.map(|due_at| due_at.max(now.plus_ms(RECHECK_MS)));
    }
    if limit.is_unused() && world.is_stale_absence(&key) {
        world.put::<ConcurrencyLimit>(ConcurrencyLimit { due_at: Some(now), ..limit });
    } else if limit.is_unused() {
        if stored.is_some() {
            world.remove(&key);
        }
    } else if stored.is_none_or(|stored| *stored != limit) {
        world.put::<ConcurrencyLimit>(limit);
    }
    Ok(())
}

/// Updates the limit of a task for its change of state. A task that became ready is admitted,
/// granted to the owner of its session, or blocked. The caller runs [`rebalance`] after saving the
/// task.
pub(super) fn on_transition(
    world: &mut World,
    before: Option<&Task>,
    task: &mut Task,
) -> Result<bool, Halt> {
    let Some(key) = task.limit_key.clone() else { return Ok(false) };
    let (now, was, is) = (world.now(), before.and_then(counter_of), counter_of(task));
    if was.is_none() && is.is_none() {
        return Ok(false);
    }
    world.prefetch(ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
    world.prefetch(Lane::key_of(&task.tenant, &task.lane));
    let mut limit = load_or_default(world, &task.tenant, &key, was.is_some())?;
    limit.uncount(was);
    if let Some(before) = before
        && let Lifecycle::Active(lease) = &before.lifecycle
        && is != Some(Counter::Running)
    {
        limit.on_lease_end(lease, lost_lease(before, task), now);
    }
    if let Lifecycle::Waiting(readiness) = &task.lifecycle {
        let admitted =
            was == Some(Counter::Admitted) || limit.blocked == 0 && limit.available(now) > 0;
        let readiness = readiness.clone();
        task.lifecycle = if admitted {
            limit.admitted_state(readiness, now)
        } else {
            Lifecycle::Blocked(readiness)
        };
        if let Lifecycle::Granted { worker, .. } = &task.lifecycle {
            let change = Change::SessionGranted { worker: worker.clone() };
            world.emit(Event::of_task(task, now, change));
        }
    }
    limit.count(counter_of(task));
    save(world, limit, true)?;
    Ok(true)
}

/// Whether the lease of a task was lost, not settled.
fn lost_lease(before: &Task, task: &Task) -> bool {
    let settled = task.last_settle.as_ref().is_some_and(|last| last.epoch == before.epoch);
    !settled && task.lost_leases > before.lost_leases
}

/// Adjusts the admitted tasks of a limit, in queue order: frees the session of an idle owner,
/// blocks tasks in excess of the limit, and admits the next ones.
pub(crate) fn rebalance(world: &mut World, tenant: &Tenant, key: &LimitKey) -> Result<(), Halt> {
    let Some(stored) = world.get::<ConcurrencyLimit>(&key.row_key(tenant))? else { return Ok(()) };
    let (mut limit, now, mut moved_all) = ((*stored).clone(), world.now(), true);
    if limit.has_ownership_ended(now) {
        limit.owner = None;
        reassign_admitted(world, &limit, key)?;
    }
    if limit.is_over_limit(now) {
        moved_all &= revoke_admission(world, &mut limit, key)?;
    }
    moved_all &= admit_next(world, &mut limit, key)?;
    save(world, limit, moved_all)
}

/// Revokes a session: immediately, or when its running tasks end.
pub(crate) fn release_session(world: &mut World, limit: &ConcurrencyLimit) -> Result<(), Halt> {
    let (Some(owner), Some(key)) = (&limit.owner, limit.limit_key()) else { return Ok(()) };
    let until = owner.expires_at.min(world.now());
    // An affinity without a holder and without admitted tasks need not be retained.
    let owner = Owner { expires_at: until, idle_ms: 0, ..owner.clone() };
    let owner = Some(owner).filter(|_| limit.kind != LimitKind::Affinity || limit.admitted > 0);
    let freed = ConcurrencyLimit { owner, ..limit.clone() };
    match freed.is_unused() {
        true => return save(world, freed, true),
        false => world.put::<ConcurrencyLimit>(freed),
    }
    rebalance(world, &limit.tenant, &key)
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
    let freed = world.for_each_collecting(&owned, |world, limit| {
        let key = ConcurrencyLimit::key_of(&limit.tenant, limit.kind, &limit.name);
        if let Some(limit) = world.get::<ConcurrencyLimit>(&key)? {
            release_session(world, &limit)?;
        }
        let left = world.get::<ConcurrencyLimit>(&key)?;
        Ok(left.is_none_or(|left| left.owner.is_none()))
    })?;
    // Sessions with running tasks stay in the index: another call would only find them again.
    Ok(owned.len() == most && freed.contains(&true))
}

/// Admits the next tasks. Returns whether as many were admitted as there are free slots.
fn admit_next(
    world: &mut World,
    limit: &mut ConcurrencyLimit,
    key: &LimitKey,
) -> Result<bool, Halt> {
    let now = world.now();
    let blocked = u32::try_from(limit.blocked).unwrap_or(u32::MAX);
    let wanted = limit.available(now).min(blocked).min(MAX_MOVED);
    if wanted == 0 {
        return Ok(true);
    }
    let next = next_admissible(world, &limit.tenant, key, wanted)?;
    for task in &next {
        let Lifecycle::Blocked(readiness) = &task.lifecycle else { continue };
        let lifecycle = limit.admitted_state(readiness.clone(), now);
        let change = match &lifecycle {
            Lifecycle::Granted { worker, .. } => Change::SessionGranted { worker: worker.clone() },
            _ => Change::Unblocked,
        };
        limit.uncount(Some(Counter::Blocked));
        limit.count(Some(Counter::Admitted));
        world.emit(Event::of_task(task, now, change));
        save_and_wake(world, Task { lifecycle, ..(**task).clone() })?;
    }
    Ok(next.len() == wanted as usize)
}

/// The first blocked tasks that can be admitted. A few that cannot are skipped.
fn next_admissible(
    world: &mut World,
    tenant: &Tenant,
    key: &LimitKey,
    wanted: u32,
) -> Result<Vec<Arc<Task>>, Halt> {
    let blocked = TaskList::LimitWaiting(key).range(tenant);
    let mut found = Vec::new();
    for most in [wanted, wanted + MAX_SKIPPED] {
        found = scan_readable(world, &blocked, most)?;
        if found.len() >= wanted as usize {
            break;
        }
    }
    found.truncate(wanted as usize);
    Ok(found)
}

fn scan_readable(world: &mut World, list: &Range, most: u32) -> Result<Vec<Arc<Task>>, Halt> {
    let mut found = world.scan::<Task>(list, most as usize)?;
    for task in &found {
        world.prefetch(ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
        world.prefetch(Lane::key_of(&task.tenant, &task.lane));
    }
    let can = found.iter().map(|task| is_route_readable(world, task)).collect::<Vec<_>>();
    let mut can = can.into_iter().collect::<Result<Vec<bool>, Halt>>()?.into_iter();
    found.retain(|_| can.next() == Some(true));
    Ok(found)
}

/// Blocks the last admitted tasks that exceed the limit. Returns whether all could be blocked.
fn revoke_admission(
    world: &mut World,
    limit: &mut ConcurrencyLimit,
    key: &LimitKey,
) -> Result<bool, Halt> {
    let now = world.now();
    let within =
        ConcurrencyLimit { admitted: 0, ..limit.clone() }.available(now).min(limit.admitted);
    let wanted = (limit.admitted - within).min(MAX_MOVED);
    // Tasks within the limit are skipped, unless they are too many to scan.
    let skipped = if within > MAX_SCANNED_ADMITTED { 0 } else { within };
    let admitted = world.scan::<Task>(
        &TaskList::LimitAdmitted(key).range(&limit.tenant),
        (skipped + wanted) as usize,
    )?;
    let mut revoked = 0;
    for task in admitted.iter().skip(skipped as usize) {
        let (Lifecycle::Waiting(readiness) | Lifecycle::Granted { readiness, until: None, .. }) =
            &task.lifecycle
        else {
            continue;
        };
        let lifecycle = Lifecycle::Blocked(readiness.clone());
        limit.uncount(Some(Counter::Admitted));
        limit.count(Some(Counter::Blocked));
        revoked += 1;
        world.emit(Event::of_task(task, now, Change::BlockedAgain));
        // A claim may have skipped this task and those behind it.
        let (tenant, lane) = (task.tenant.clone(), task.lane.clone());
        world.wake(Wake { tenant, lane, route: Some(task.route.clone()) });
        save_and_wake(world, Task { lifecycle, ..(**task).clone() })?;
    }
    Ok(revoked == wanted)
}

/// Grants the admitted tasks to the owner of the session, or to no worker if it has none.
fn reassign_admitted(
    world: &mut World,
    limit: &ConcurrencyLimit,
    key: &LimitKey,
) -> Result<(), Halt> {
    if limit.admitted == 0 {
        return Ok(());
    }
    let now = world.now();
    let admitted = TaskList::LimitAdmitted(key).range(&limit.tenant);
    for task in scan_readable(world, &admitted, limit.admitted)? {
        let (change, readiness) = match &task.lifecycle {
            Lifecycle::Granted { readiness, worker, until: None } => {
                (Change::GrantReleased { worker: worker.clone() }, readiness)
            }
            Lifecycle::Waiting(readiness) => (Change::Unblocked, readiness),
            _ => continue,
        };
        let lifecycle = limit.admitted_state(readiness.clone(), now);
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
pub(crate) fn may_start(
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
        let Some(limit) =
            unless_quarantined(world.get::<ConcurrencyLimit>(&key.row_key(&task.tenant)))?
        else {
            may.push(false);
            continue;
        };
        if let Some(limit) = &limit
            && limit.kind.is_owned()
            && limit.admitted > 1
            && limit.owner(now).is_none()
        {
            // The claim grants these to the new owner, too. One row more shows that these are all.
            let admitted = TaskList::LimitAdmitted(key).range(&task.tenant);
            world.prefetch_scan(&admitted, limit.admitted as usize + 1);
        }
        let count = counts.entry(key).or_default();
        let starts = limit.is_none_or(|limit| {
            limit.may_start(*count + 1, now)
                && limit.owner(now).is_none_or(|owner| owner.worker == *worker)
        });
        *count += u32::from(starts);
        may.push(starts);
    }
    Ok(may)
}

/// Counts a leased task as started. The worker that claims the first task of a session owns it.
pub(crate) fn on_lease(world: &mut World, task: &Task, idle_ms: u64) -> Result<(), Halt> {
    let (Some(key), Lifecycle::Active(lease)) = (&task.limit_key, &task.lifecycle) else {
        return Ok(());
    };
    let now = world.now();
    let mut limit = load_or_default(world, &task.tenant, key, true)?;
    limit.uncount(Some(Counter::Admitted));
    limit.charge(1, now);
    if limit.kind.is_owned() {
        let worker = lease.worker.clone();
        let changed = limit.owner(now).is_none();
        let active_at = (limit.kind == LimitKind::Affinity).then_some(now);
        limit.owner = Some(Owner { worker, expires_at: now.plus_ms(idle_ms), idle_ms, active_at });
        if changed {
            reassign_admitted(world, &limit, key)?;
        }
    }
    limit.count(Some(Counter::Running));
    save(world, limit, true)
}

/// Records activity for the affinity of a task.
pub(crate) fn mark_active(world: &mut World, task: &Task) -> Result<(), Halt> {
    let Some(key @ LimitKey::Affinity(_)) = &task.limit_key else { return Ok(()) };
    let mut limit = load_or_default(world, &task.tenant, key, true)?;
    limit.mark_active(world.now());
    save(world, limit, true)
}

/// Renews the lock of an affinity, if it has not expired and its holder was active within
/// `idle_ms`. Returns whether it was renewed.
pub(crate) fn renew_affinity(
    world: &mut World,
    limit: &ConcurrencyLimit,
    lock_ms: u64,
    idle_ms: u64,
) -> Result<bool, Halt> {
    let now = world.now();
    let stored = world.get::<ConcurrencyLimit>(&ConcurrencyLimit::key_of(
        &limit.tenant,
        limit.kind,
        &limit.name,
    ))?;
    let Some(stored) = stored.filter(|stored| stored.kind == LimitKind::Affinity) else {
        return Ok(false);
    };
    let active = |owner: &&Owner| owner.active_at.is_some_and(|at| now < at.plus_ms(idle_ms));
    let Some(owner) = stored.owner(now).filter(active) else { return Ok(false) };
    let owner = Some(Owner { expires_at: now.plus_ms(lock_ms), ..owner.clone() });
    save(world, ConcurrencyLimit { owner, ..(*stored).clone() }, true)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Cancel, ChangePriority, Claim, ClaimGranted, Complete, Create, Fail, Grant, NewMessage,
        NewTask, Outcome, QuotaScope, Release, Replay, SendMessages, SetQuota, Snooze, Suspend,
        Sweep, WaitChildren,
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
        assert_eq!(stage.limits(), [], "an unused limit is deleted");
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
            let limit = &stage.limits()[0];
            let left = u64::from(what == "release" || what.starts_with("expiry"));
            assert_eq!((limit.running, limit.admitted, limit.blocked), (0, 1, left), "{what}");
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
        stage.must(Replay { task: key("a"), execution: 0 });
        assert_eq!(state(&stage, "a"), PublicState::Blocked, "it is behind earlier tasks");
    }

    #[test]
    fn a_rate_limit_unblocks_when_its_window_passes() {
        let mut stage = with([keyed("a"), keyed("b"), keyed("c")]);
        let (scope, rate) =
            (QuotaScope::Concurrency("k".into()), Rate { limit: 2, window_ms: 10_000 });
        let tenant = Tenant::default();
        stage.must(SetQuota { tenant, scope, limit: None, rate: Some(rate) });
        assert_eq!(ids(stage.must(Claim { limit: 9, ..claim() })), ["a", "b"]);
        stage.must(complete("a", 1));
        assert_eq!(state(&stage, "c"), PublicState::Blocked, "its start still counts");
        let due_at = stage.limits()[0].due_at.expect("it is due");
        stage.now = due_at;
        let Outcome::Swept { swept: 1, .. } = stage.must(Sweep::default()) else { panic!() };
        assert_eq!(ids(stage.must(claim())), ["c"]);
    }

    #[test]
    fn a_session_stays_with_its_owner() {
        let mut stage = with(["a", "b", "c"].map(of_session));
        assert!(ids(stage.must(claim())).is_empty(), "it does not capabilities sessions");
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
        assert_eq!(stage.limits(), []);
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
        assert_eq!(stage.limits()[0].owner.as_ref().unwrap().worker, "v".into());
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
        able.capabilities.names.insert("gpu".into());
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
        let rejected = stage.run(complete("a", 1)).unwrap_err();
        assert_eq!(rejected.code(), "quarantined");
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
        let limit = &stage.limits()[0];
        assert_eq!((limit.blocked, limit.running, limit.admitted), (2, 0, 0));
        assert_eq!(limit.due_at, Some(stage.now.plus_ms(RECHECK_MS)), "not immediately");
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
        assert_eq!(
            stage.run(ClaimGranted::new("b", "v")).unwrap_err().code(),
            "concurrency_limit_reached"
        );
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
        assert_eq!(stage.limits(), []);
    }

    /// The end of a child resumes its parent while the rate limit allows another start.
    #[test]
    fn a_blocked_child_that_ends_is_not_admitted() {
        let mut stage = with([keyed("a")]);
        let (scope, rate) =
            (QuotaScope::Concurrency("k".into()), Rate { limit: 1, window_ms: 10_000 });
        let tenant = Tenant::default();
        stage.must(SetQuota { tenant, scope, limit: None, rate: Some(rate) });
        stage.must(claim());
        stage.must(Create::one(NewTask { parent: Some("a".into()), ..keyed("b") }));
        stage.must(Create::one(keyed("c")));
        stage.must(WaitChildren { fence: fence_of("a", 1) });
        stage.later(20_000);
        stage.must(Cancel { task: key("b"), reason: String::new() });
        let limit = &stage.limits()[0];
        assert_eq!((limit.running, limit.admitted, limit.blocked), (0, 1, 1));
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
        stage.must(SendMessages { tenant, messages });
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
