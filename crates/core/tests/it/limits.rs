//! Invariants of every concurrency limit, session and quota.

use std::collections::BTreeMap;

use windlass_core::{
    Command, ConcurrencyLimit, CountedByQuota, Lane, Lifecycle, LimitKind, Outcome, Task, TaskId,
    Timestamp,
};

use crate::invariants::{Held, View, ensure};
use crate::steps::Step;

fn is_of(task: &Task, limit: &ConcurrencyLimit) -> bool {
    task.tenant == limit.tenant && task.limit_key.is_some() && task.limit_key == limit.limit_key()
}

fn own<'v>(view: &'v View, limit: &'v ConcurrencyLimit) -> impl Iterator<Item = &'v Task> {
    view.tasks.values().filter(move |task| is_of(task, limit))
}

/// The counters of a limit are the numbers of its tasks in each state.
pub(crate) fn a_limit_counts_its_tasks(view: &View) -> Held {
    for task in view.tasks.values().filter(|task| task.limit_key.is_some()) {
        let is_counted = matches!(
            task.lifecycle,
            Lifecycle::Blocked(_)
                | Lifecycle::Waiting(_)
                | Lifecycle::Granted { .. }
                | Lifecycle::Active(_)
        );
        let has_limit = view.limits.iter().any(|limit| is_of(task, limit));
        ensure(has_limit || !is_counted, || format!("nothing counts {task:?}"))?;
    }
    view.limits.iter().filter(|limit| limit.limit_key().is_some()).try_for_each(|limit| {
        let count = |fits: fn(&Lifecycle) -> bool| {
            own(view, limit).filter(|task| fits(&task.lifecycle)).count() as u64
        };
        let waiting = count(|state| matches!(state, Lifecycle::Blocked(_)));
        let admitted =
            count(|state| matches!(state, Lifecycle::Waiting(_) | Lifecycle::Granted { .. }));
        let running = count(|state| matches!(state, Lifecycle::Active(_)));
        let counted = (limit.blocked, u64::from(limit.admitted), u64::from(limit.running));
        let found = (waiting, admitted, running);
        ensure(counted == found, || format!("{found:?} are at {limit:?}"))
    })
}

pub(crate) fn a_quota_counts_its_leases(view: &View) -> Held {
    let counted = |task: &Task| match &task.lifecycle {
        Lifecycle::Active(lease) => lease.counted_by_quota,
        _ => CountedByQuota::default(),
    };
    let counts = |limit: &ConcurrencyLimit, task: &Task| match limit.kind {
        LimitKind::Lane => counted(task).lane && task.lane.as_str() == limit.name,
        LimitKind::Tenant => counted(task).tenant,
        LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => false,
    };
    for limit in view.limits.iter().filter(|limit| limit.limit_key().is_none()) {
        let leases = view.tasks.values().filter(|task| counts(limit, task)).count();
        ensure(limit.running as usize == leases, || format!("{leases} leases of {limit:?}"))?;
    }
    for task in view.tasks.values() {
        let counted = counted(task);
        let has = |kind| view.limits.iter().any(|limit| limit.kind == kind && counts(limit, task));
        let has_quotas =
            (!counted.lane || has(LimitKind::Lane)) && (!counted.tenant || has(LimitKind::Tenant));
        ensure(has_quotas, || format!("nothing counts the lease of {task:?}"))?;
    }
    Ok(())
}

/// How many more may start, by the rule and independent of the code.
pub(crate) fn room(limit: &ConcurrencyLimit, now: Timestamp) -> usize {
    let taken = limit.running as usize + limit.admitted as usize;
    // A session that is released from its owner waits for the end of the tasks that run there.
    if limit.running > 0 && limit.owner.as_ref().is_some_and(|owner| owner.idle_ms == 0) {
        return 0;
    }
    let places = limit.limit.map_or(usize::MAX, |limit| (limit as usize).saturating_sub(taken));
    let started: usize =
        limit.starts.iter().filter(|s| now < s.until).map(|s| s.count as usize).sum();
    let started = started + limit.admitted as usize;
    let starts =
        limit.rate.map_or(usize::MAX, |rate| (rate.limit as usize).saturating_sub(started));
    places.min(starts)
}

/// How many tasks the quotas of a lane allow to claim.
pub(crate) fn left_of(view: &View, lane: &Lane) -> usize {
    let counts = |limit: &&ConcurrencyLimit| match limit.kind {
        LimitKind::Lane => limit.name == lane.name.as_str(),
        LimitKind::Tenant => true,
        LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => false,
    };
    let quotas = view.limits.iter().filter(counts).filter(|limit| limit.configured);
    quotas.map(|limit| room(limit, view.now)).min().unwrap_or(usize::MAX)
}

/// Whether a claim was rejected until a quota of this lane has room.
pub(crate) fn has_rejected(view: &View, lane: &Lane) -> bool {
    view.limits.iter().any(|limit| limit.starved_lanes.contains(&lane.name))
}

/// No task waits for a limit that has room, unless the sweep is about to process it.
pub(crate) fn waiting_tasks_are_admitted(view: &View) -> Held {
    for limit in view.limits.iter().filter(|limit| limit.blocked > 0) {
        let due = limit.due_at.is_some_and(|due_at| due_at <= view.now);
        ensure(due || room(limit, view.now) == 0, || format!("{limit:?} could open"))?;
        // Something will open it: running tasks, admitted tasks, or time.
        let moves = limit.running > 0 || limit.admitted > 0 || limit.due_at.is_some();
        ensure(moves || limit.limit == Some(0), || format!("nothing opens {limit:?}"))?;
    }
    view.limits.iter().filter(|limit| !limit.starved_lanes.is_empty()).try_for_each(|limit| {
        let due = limit.due_at.is_some_and(|due_at| due_at <= view.now);
        ensure(due || room(limit, view.now) == 0, || format!("no claim was woken by {limit:?}"))?;
        let moves = limit.running > 0 || limit.due_at.is_some();
        ensure(moves || limit.limit == Some(0), || format!("nothing opens {limit:?}"))
    })
}

pub(crate) fn a_session_runs_at_its_owner(view: &View) -> Held {
    for limit in view.limits.iter().filter(|limit| limit.kind == LimitKind::Session) {
        for task in own(view, limit) {
            let at = match &task.lifecycle {
                Lifecycle::Active(lease) => Some(&lease.worker),
                Lifecycle::Granted { worker, until: None, .. } => Some(worker),
                _ => None,
            };
            let owner = limit.owner.as_ref().map(|owner| &owner.worker);
            ensure(at.is_none() || at == owner, || format!("{task:?} is not at {owner:?}"))?;
            let open = matches!(task.lifecycle, Lifecycle::Waiting(_));
            let alive = limit
                .owner
                .as_ref()
                .is_some_and(|owner| limit.running > 0 || view.now < owner.expires_at);
            ensure(!open || !alive, || format!("{task:?} is not granted to {owner:?}"))?;
        }
    }
    Ok(())
}

pub(crate) fn no_unused_limit_remains(view: &View) -> Held {
    view.limits.iter().try_for_each(|limit| {
        let used = limit.blocked + u64::from(limit.admitted) + u64::from(limit.running) > 0;
        let retained = limit.configured || limit.owner.is_some();
        ensure(used || retained, || format!("{limit:?} is unused"))
    })
}

fn before<'v>(step: &'v Step<'_>, limit: &ConcurrencyLimit) -> Option<&'v ConcurrencyLimit> {
    let same = |was: &&ConcurrencyLimit| was.kind == limit.kind && was.name == limit.name;
    step.before.limits.iter().find(same)
}

pub(crate) fn a_limit_holds_unless_it_was_narrowed(step: &Step<'_>) -> Held {
    step.after.limits.iter().try_for_each(|limit| {
        let was = before(step, limit).map_or(0, |was| was.running);
        let most = limit.limit.unwrap_or(u32::MAX).max(was);
        ensure(limit.running <= most, || format!("too many run: {limit:?}"))?;
        let narrowed = matches!(step.command, Command::SetQuota(_));
        let taken = limit.running + limit.admitted;
        let over = limit.limit.is_some_and(|limit| taken > limit) && limit.admitted > 0;
        ensure(!over || narrowed, || format!("too many were admitted: {limit:?}"))?;
        ensure(!over, || format!("too many stay admitted: {limit:?}"))
    })
}

fn name(limit: &ConcurrencyLimit) -> String {
    format!("{}/{}", limit.kind.as_str(), limit.name)
}

fn counts(limit: &ConcurrencyLimit, task: &Task) -> bool {
    match limit.kind {
        LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => is_of(task, limit),
        LimitKind::Lane => limit.configured && task.lane.as_str() == limit.name,
        LimitKind::Tenant => limit.configured,
    }
}

/// Records when tasks were started, as long as the rate does not change.
pub(crate) fn note_starts(step: &Step<'_>, starts: &mut BTreeMap<String, Vec<Timestamp>>) {
    let Ok(outcome) = step.outcome else { return };
    for limit in &step.after.limits {
        let was = before(step, limit).and_then(|was| was.rate);
        let recorded = starts.entry(name(limit)).or_default();
        if was != limit.rate {
            recorded.clear();
        }
        if let (Some(_), Outcome::Claimed(tasks)) = (limit.rate, outcome) {
            let count = tasks.iter().filter(|task| counts(limit, task)).count();
            recorded.extend(std::iter::repeat_n(step.after.now, count));
        }
    }
    starts.retain(|_, recorded| !recorded.is_empty());
}

/// The rate holds in every window.
pub(crate) fn no_window_has_too_many_starts(step: &Step<'_>) -> Held {
    let mut starts = step.ghost.starts.clone();
    note_starts(step, &mut starts);
    step.after.limits.iter().try_for_each(|limit| {
        let (Some(rate), Some(starts)) = (limit.rate, starts.get(&name(limit))) else {
            return Ok(());
        };
        starts.iter().try_for_each(|from| {
            let end = from.plus_ms(rate.window_ms);
            let within = starts.iter().filter(|at| *from <= **at && **at < end).count();
            ensure(within <= rate.limit as usize, || format!("{within} starts: {limit:?}"))
        })
    })
}

/// An admitted task comes before all tasks that still wait.
pub(crate) fn waiting_tasks_are_in_order(step: &Step<'_>) -> Held {
    // A race may change positions after the decision.
    if step.raced {
        return Ok(());
    }
    let place = |task: &Task| {
        let since = task.lifecycle.readiness().map(|ready| ready.ready_at);
        (-task.priority, since, task.id.clone())
    };
    let is_blocked = |task: &Task| matches!(task.lifecycle, Lifecycle::Blocked(_));
    let through = |id: &TaskId| {
        let is = step.after.tasks.get(id)?;
        let let_through = matches!(is.lifecycle, Lifecycle::Waiting(_) | Lifecycle::Granted { .. });
        let_through.then_some(is)
    };
    for was in step.before.tasks.values().filter(|task| is_blocked(task)) {
        let Some(is) = through(&was.id) else { continue };
        for other in step
            .after
            .tasks
            .values()
            .filter(|other| other.limit_key == is.limit_key && is_blocked(other))
        {
            ensure(place(is) < place(other), || format!("{is:?} came before {other:?}"))?;
        }
    }
    Ok(())
}
