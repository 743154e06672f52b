//! Invariants of every concurrency limit, session and quota.

use std::collections::BTreeMap;

use windlass_core::{
    Command, ConcurrencyLimit, CountedByQuota, Lane, Lifecycle, LimitKind, Outcome, Task, TaskId,
    Timestamp,
};

use crate::invariants::{Held, View, ensure};
use crate::steps::Step;

fn is_of(task: &Task, gate: &ConcurrencyLimit) -> bool {
    task.tenant == gate.tenant && task.limit_key.is_some() && task.limit_key == gate.limit_key()
}

fn own<'v>(view: &'v View, gate: &'v ConcurrencyLimit) -> impl Iterator<Item = &'v Task> {
    view.tasks.values().filter(move |task| is_of(task, gate))
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
        let known = view.gates.iter().any(|gate| is_of(task, gate));
        ensure(known || !is_counted, || format!("nothing counts {task:?}"))?;
    }
    view.gates.iter().filter(|gate| gate.limit_key().is_some()).try_for_each(|gate| {
        let count = |fits: fn(&Lifecycle) -> bool| {
            own(view, gate).filter(|task| fits(&task.lifecycle)).count() as u64
        };
        let waiting = count(|state| matches!(state, Lifecycle::Blocked(_)));
        let admitted =
            count(|state| matches!(state, Lifecycle::Waiting(_) | Lifecycle::Granted { .. }));
        let running = count(|state| matches!(state, Lifecycle::Active(_)));
        let counted = (gate.waiting, u64::from(gate.admitted), u64::from(gate.running));
        let found = (waiting, admitted, running);
        ensure(counted == found, || format!("{found:?} are at {gate:?}"))
    })
}

pub(crate) fn a_quota_counts_its_leases(view: &View) -> Held {
    let metered = |task: &Task| match &task.lifecycle {
        Lifecycle::Active(lease) => lease.counted_by_quota,
        _ => CountedByQuota::default(),
    };
    let counts = |gate: &ConcurrencyLimit, task: &Task| match gate.kind {
        LimitKind::Lane => metered(task).lane && task.lane.as_str() == gate.name,
        LimitKind::Tenant => metered(task).tenant,
        LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => false,
    };
    for gate in view.gates.iter().filter(|gate| gate.limit_key().is_none()) {
        let leases = view.tasks.values().filter(|task| counts(gate, task)).count();
        ensure(gate.running as usize == leases, || format!("{leases} leases of {gate:?}"))?;
    }
    for task in view.tasks.values() {
        let metered = metered(task);
        let has = |kind| view.gates.iter().any(|gate| gate.kind == kind && counts(gate, task));
        let known =
            (!metered.lane || has(LimitKind::Lane)) && (!metered.tenant || has(LimitKind::Tenant));
        ensure(known, || format!("nothing counts the lease of {task:?}"))?;
    }
    Ok(())
}

/// How many more may start, by the rule and independent of the code.
pub(crate) fn room(gate: &ConcurrencyLimit, now: Timestamp) -> usize {
    let taken = gate.running as usize + gate.admitted as usize;
    // A session that is released from its owner waits for the end of the tasks that run there.
    if gate.running > 0 && gate.owner.as_ref().is_some_and(|owner| owner.idle_ms == 0) {
        return 0;
    }
    let places = gate.limit.map_or(usize::MAX, |limit| (limit as usize).saturating_sub(taken));
    let started: usize =
        gate.starts.iter().filter(|s| now < s.until).map(|s| s.count as usize).sum();
    let started = started + gate.admitted as usize;
    let starts =
        gate.rate.map_or(usize::MAX, |rate| (rate.starts as usize).saturating_sub(started));
    places.min(starts)
}

/// How many tasks the quotas of a lane allow to claim.
pub(crate) fn left_of(view: &View, lane: &Lane) -> usize {
    let counts = |gate: &&ConcurrencyLimit| match gate.kind {
        LimitKind::Lane => gate.name == lane.name.as_str(),
        LimitKind::Tenant => true,
        LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => false,
    };
    let quotas = view.gates.iter().filter(counts).filter(|gate| gate.configured);
    quotas.map(|gate| room(gate, view.now)).min().unwrap_or(usize::MAX)
}

/// Whether a claim was refused until a quota of this lane has room.
pub(crate) fn has_refused(view: &View, lane: &Lane) -> bool {
    view.gates.iter().any(|gate| gate.starved_lanes.contains(&lane.name))
}

/// No task waits for a limit that has room, unless the sweep is about to process it.
pub(crate) fn waiting_tasks_are_admitted(view: &View) -> Held {
    for gate in view.gates.iter().filter(|gate| gate.waiting > 0) {
        let due = gate.due_at.is_some_and(|due_at| due_at <= view.now);
        ensure(due || room(gate, view.now) == 0, || format!("{gate:?} could open"))?;
        // Something will open it: running tasks, admitted tasks, or time.
        let moves = gate.running > 0 || gate.admitted > 0 || gate.due_at.is_some();
        ensure(moves || gate.limit == Some(0), || format!("nothing opens {gate:?}"))?;
    }
    view.gates.iter().filter(|gate| !gate.starved_lanes.is_empty()).try_for_each(|gate| {
        let due = gate.due_at.is_some_and(|due_at| due_at <= view.now);
        ensure(due || room(gate, view.now) == 0, || format!("no claim was woken by {gate:?}"))?;
        let moves = gate.running > 0 || gate.due_at.is_some();
        ensure(moves || gate.limit == Some(0), || format!("nothing opens {gate:?}"))
    })
}

pub(crate) fn a_session_runs_at_its_owner(view: &View) -> Held {
    for gate in view.gates.iter().filter(|gate| gate.kind == LimitKind::Session) {
        for task in own(view, gate) {
            let at = match &task.lifecycle {
                Lifecycle::Active(lease) => Some(&lease.worker),
                Lifecycle::Granted { worker, until: None, .. } => Some(worker),
                _ => None,
            };
            let owner = gate.owner.as_ref().map(|owner| &owner.worker);
            ensure(at.is_none() || at == owner, || format!("{task:?} is not at {owner:?}"))?;
            let open = matches!(task.lifecycle, Lifecycle::Waiting(_));
            let alive = gate
                .owner
                .as_ref()
                .is_some_and(|owner| gate.running > 0 || view.now < owner.expires_at);
            ensure(!open || !alive, || format!("{task:?} is not granted to {owner:?}"))?;
        }
    }
    Ok(())
}

pub(crate) fn no_unused_limit_remains(view: &View) -> Held {
    view.gates.iter().try_for_each(|gate| {
        let used = gate.waiting + u64::from(gate.admitted) + u64::from(gate.running) > 0;
        let kept = gate.configured || gate.owner.is_some();
        ensure(used || kept, || format!("{gate:?} is unused"))
    })
}

fn before<'v>(step: &'v Step<'_>, gate: &ConcurrencyLimit) -> Option<&'v ConcurrencyLimit> {
    let same = |was: &&ConcurrencyLimit| was.kind == gate.kind && was.name == gate.name;
    step.before.gates.iter().find(same)
}

pub(crate) fn a_limit_holds_unless_it_was_narrowed(step: &Step<'_>) -> Held {
    step.after.gates.iter().try_for_each(|gate| {
        let was = before(step, gate).map_or(0, |was| was.running);
        let most = gate.limit.unwrap_or(u32::MAX).max(was);
        ensure(gate.running <= most, || format!("too many run: {gate:?}"))?;
        let narrowed = matches!(step.command, Command::SetQuota(_));
        let taken = gate.running + gate.admitted;
        let over = gate.limit.is_some_and(|limit| taken > limit) && gate.admitted > 0;
        ensure(!over || narrowed, || format!("too many were admitted: {gate:?}"))?;
        ensure(!over, || format!("too many stay admitted: {gate:?}"))
    })
}

fn name(gate: &ConcurrencyLimit) -> String {
    format!("{}/{}", gate.kind.as_str(), gate.name)
}

fn counts(gate: &ConcurrencyLimit, task: &Task) -> bool {
    match gate.kind {
        LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => is_of(task, gate),
        LimitKind::Lane => gate.configured && task.lane.as_str() == gate.name,
        LimitKind::Tenant => gate.configured,
    }
}

/// Records when tasks were started, as long as the rate does not change.
pub(crate) fn note_starts(step: &Step<'_>, starts: &mut BTreeMap<String, Vec<Timestamp>>) {
    let Ok(answer) = step.answer else { return };
    for gate in &step.after.gates {
        let was = before(step, gate).and_then(|was| was.rate);
        let known = starts.entry(name(gate)).or_default();
        if was != gate.rate {
            known.clear();
        }
        if let (Some(_), Outcome::Claimed(tasks)) = (gate.rate, answer) {
            let count = tasks.iter().filter(|task| counts(gate, task)).count();
            known.extend(std::iter::repeat_n(step.after.now, count));
        }
    }
    starts.retain(|_, known| !known.is_empty());
}

/// The rate holds in every window.
pub(crate) fn no_window_has_too_many_starts(step: &Step<'_>) -> Held {
    let mut starts = step.ghost.starts.clone();
    note_starts(step, &mut starts);
    step.after.gates.iter().try_for_each(|gate| {
        let (Some(rate), Some(starts)) = (gate.rate, starts.get(&name(gate))) else {
            return Ok(());
        };
        starts.iter().try_for_each(|from| {
            let end = from.plus_ms(rate.window_ms);
            let within = starts.iter().filter(|at| *from <= **at && **at < end).count();
            ensure(within <= rate.starts as usize, || format!("{within} starts: {gate:?}"))
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
    let gated = |task: &Task| matches!(task.lifecycle, Lifecycle::Blocked(_));
    let through = |id: &TaskId| {
        let is = step.after.tasks.get(id)?;
        let let_through = matches!(is.lifecycle, Lifecycle::Waiting(_) | Lifecycle::Granted { .. });
        let_through.then_some(is)
    };
    for was in step.before.tasks.values().filter(|task| gated(task)) {
        let Some(is) = through(&was.id) else { continue };
        for other in step
            .after
            .tasks
            .values()
            .filter(|other| other.limit_key == is.limit_key && gated(other))
        {
            ensure(place(is) < place(other), || format!("{is:?} came before {other:?}"))?;
        }
    }
    Ok(())
}
