//! Invariants of every step from one state to the next.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{
    ActiveAttempt, Change, ChangeSet, Command, Effect, Event, Fence, Lane, Lease, Lifecycle,
    Mailbox, Outcome, PublicState, Rejection, ResumeCause, Settled, SuspendedAttempt, Table, Task,
    TaskId, Timestamp, Token, Waitpoint, Wake, WorkflowProperty,
};

use crate::invariants::{Held, View, ensure};
use crate::{messages, workflows};

pub(crate) struct Step<'a> {
    pub(crate) before: &'a View,
    pub(crate) after: &'a View,
    pub(crate) command: &'a Command,
    pub(crate) outcome: &'a Result<Outcome, Rejection>,
    pub(crate) changes: &'a ChangeSet,
    pub(crate) ghost: &'a Ghost,
    /// Another commit came between the decision and this one.
    pub(crate) raced: bool,
}

/// What an observer remembers of the steps before, and no record holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghost {
    /// Every fence that a claim has issued, the latest last.
    pub(crate) fences: Vec<Fence>,
    /// What each lease was settled as.
    pub(crate) settles: BTreeMap<Fence, Settled>,
    /// When tasks of each concurrency limit or quota were started under its current rate.
    pub(crate) starts: BTreeMap<String, Vec<Timestamp>>,
    /// The messages that were accepted and not consumed, of open tasks.
    pub(crate) accepted: BTreeSet<(TaskId, u64)>,
    /// The token that was issued last.
    pub(crate) token: Option<Token>,
}

pub(crate) type StepInvariant = (&'static str, fn(&Step<'_>) -> Held);

pub(crate) const EVERY_STEP: &[StepInvariant] = &[
    ("a rejection changes nothing", a_rejection_changes_nothing),
    ("epochs only rise, by a claim", epochs_only_rise),
    ("a fence is issued once", a_fence_is_issued_once),
    ("an ended task is frozen", an_ended_task_is_frozen),
    ("attempts are counted when they begin", attempts_are_counted_when_they_begin),
    ("a lease is settled once", a_lease_is_settled_once),
    ("a stale fence is rejected", a_stale_fence_is_rejected),
    ("a limit holds unless it was lowered", a_limit_holds_unless_it_was_lowered),
    ("every change has an event", every_change_has_an_event),
    ("versions rise", versions_rise),
    ("a claimable task wakes a claim", a_claimable_task_wakes_a_claim),
    ("a sweep leaves nothing due", a_sweep_leaves_nothing_due),
    ("a result never changes", a_result_never_changes),
    ("a parent that has ended has no more children", an_ended_parent_has_no_more_children),
    ("a parent is woken once, by the last child", a_parent_is_woken_by_the_last_child),
    ("a limit holds unless it was narrowed", crate::limits::a_limit_holds_unless_it_was_narrowed),
    ("no window has too many starts", crate::limits::no_window_has_too_many_starts),
    ("waiting tasks are in order", crate::limits::waiting_tasks_are_in_order),
    ("a granted task is leased by its worker", a_granted_task_is_leased_by_its_worker),
    ("a worker declared dead holds no lease", a_worker_declared_dead_holds_no_lease),
    ("a lease ends early only with its worker", a_lease_ends_early_only_with_its_worker),
    ("a response never changes", crate::requests::a_response_never_changes),
    ("one owner is admitted at a time", crate::requests::one_owner_is_admitted_at_a_time),
    ("an effect keeps its request id", crate::requests::an_effect_keeps_its_request_id),
    ("no message is lost", messages::no_message_is_lost),
    ("a sequence number is used once", messages::a_sequence_number_is_used_once),
    ("a turn is the next of its holder", workflows::a_turn_is_the_next_of_its_holder),
    ("consumed messages are deleted", workflows::consumed_messages_are_deleted),
    ("an activity ends with a report", workflows::an_activity_ends_with_a_report),
];

impl Step<'_> {
    pub(crate) fn broken(&self) -> Vec<(&'static str, String)> {
        let failed = |(name, check): &StepInvariant| Some((*name, check(self).err()?));
        EVERY_STEP.iter().filter_map(failed).collect()
    }

    /// The tasks that exist before and after.
    fn pairs(&self) -> impl Iterator<Item = (&Task, &Task)> {
        let after = &self.after.tasks;
        self.before.tasks.iter().filter_map(|(id, task)| Some((task, after.get(id)?)))
    }

    pub(crate) fn claimed(&self) -> Vec<Fence> {
        match self.outcome {
            Ok(Outcome::Claimed(tasks)) => tasks.iter().map(|task| task.fence()).collect(),
            _ => Vec::new(),
        }
    }

    /// What the observer remembers after this step.
    pub(crate) fn remember(&self) -> Ghost {
        let mut ghost = self.ghost.clone();
        ghost.fences.extend(self.claimed());
        if let (Some(fence), Some(settled)) = (settles(self.command), settled(self.outcome)) {
            ghost.settles.insert(fence.clone(), settled);
        }
        ghost.accepted = messages::accepted(self);
        match self.outcome {
            Ok(Outcome::WaitpointCreated(made)) => ghost.token = Some(made.token.clone()),
            Ok(Outcome::Suspended { waitpoints }) if !waitpoints.is_empty() => {
                ghost.token = Some(waitpoints[0].token.clone());
            }
            _ => {}
        }
        crate::limits::note_starts(self, &mut ghost.starts);
        ghost
    }
}

/// The fence of a command that ends a lease.
fn settles(command: &Command) -> Option<&Fence> {
    match command {
        Command::Complete(c) => Some(&c.fence),
        Command::Fail(c) => Some(&c.fence),
        Command::Snooze(c) => Some(&c.fence),
        Command::Release(c) => Some(&c.fence),
        Command::CancelHeld(c) => Some(&c.fence),
        Command::WaitChildren(c) => Some(&c.fence),
        Command::Suspend(c) => Some(&c.fence),
        _ => None,
    }
}

/// How a command settled its lease.
fn settled(outcome: &Result<Outcome, Rejection>) -> Option<Settled> {
    match outcome {
        Ok(Outcome::Settled(settled)) => Some(settled.clone()),
        Ok(Outcome::Suspended { .. }) => Some(Settled::Suspended),
        _ => None,
    }
}

/// The fence of a command that acts under a lease and does not end it.
fn keeps(command: &Command) -> Option<&Fence> {
    match command {
        Command::Begin(c) => Some(&c.fence),
        Command::Renew(c) => Some(&c.fence),
        Command::ReportProgress(c) => Some(&c.fence),
        Command::ConsumeMessages(c) => Some(&c.fence),
        _ => None,
    }
}

fn lease(task: &Task) -> Option<&Lease> {
    match &task.lifecycle {
        Lifecycle::Active(lease) => Some(lease),
        _ => None,
    }
}

/// Whether this fence is that of a lease alive at `now`.
fn is_held(view: &View, fence: &Fence, now: Timestamp) -> bool {
    view.tasks.get(&fence.task.id).is_some_and(|task| {
        let alive = |lease: &Lease| now < lease.expires_at || task.policy.accept_expired_lease;
        task.epoch == fence.epoch && lease(task).is_some_and(alive)
    })
}

fn a_rejection_changes_nothing(step: &Step<'_>) -> Held {
    let quiet = step.changes.is_empty() && step.changes.wakes.is_empty();
    ensure(step.outcome.is_ok() || quiet, || format!("{:?}", step.changes))
}

fn epochs_only_rise(step: &Step<'_>) -> Held {
    let claimed: BTreeSet<Fence> = step.claimed().into_iter().collect();
    step.pairs().try_for_each(|(was, is)| {
        let rise = u64::from(claimed.contains(&is.fence()));
        ensure(is.epoch == was.epoch + rise, || {
            format!("{} from {} to {}", is.id, was.epoch, is.epoch)
        })
    })
}

fn a_fence_is_issued_once(step: &Step<'_>) -> Held {
    step.claimed().iter().try_for_each(|fence| {
        ensure(!step.ghost.fences.contains(fence), || format!("{fence:?} was issued before"))
    })
}

fn an_ended_task_is_frozen(step: &Step<'_>) -> Held {
    for (id, was) in step.before.tasks.iter().filter(|(_, was)| was.lifecycle.ended_at().is_some())
    {
        let fits = match (step.command, step.after.tasks.get(id)) {
            (_, Some(is)) if seen(Some(is)) == seen(Some(was)) => true,
            (Command::Replay(_), Some(is)) => {
                is.execution == was.execution + 1
                    && is.lifecycle.readiness().is_some()
                    && is.results == was.results
            }
            (Command::DeleteTask(delete), None) => delete.task.id == *id,
            (Command::Sweep(_), None) => was.due_at.is_some_and(|due_at| due_at <= step.after.now),
            _ => false,
        };
        ensure(fits, || format!("{was:?} became {:?}", step.after.tasks.get(id)))?;
    }
    step.before.tasks.iter().try_for_each(|(id, was)| {
        let allowed = step.after.tasks.contains_key(id) || was.lifecycle.ended_at().is_some();
        let allowed = allowed || workflows::is_activity(was);
        ensure(allowed, || format!("{was:?} was deleted before its end"))
    })
}

fn attempts_are_counted_when_they_begin(step: &Step<'_>) -> Held {
    step.pairs().try_for_each(|(was, is)| {
        let ran = lease(was).and_then(|lease| lease.attempt.as_ref());
        let runs = lease(is).and_then(|lease| lease.attempt.as_ref());
        // A failure before the attempt has begun counts as an attempt too.
        let failed = lease(was).is_some() && ran.is_none() && is.last_settle != was.last_settle;
        let failed = failed && matches!(step.command, Command::Fail(_));
        let resumed = was.lifecycle.readiness().and_then(|ready| ready.suspended_attempt.as_ref());
        let resumed =
            resumed.is_some_and(|paused| runs.is_some_and(|run| is_same_attempt(paused, run)));
        let waits = matches!(is.lifecycle, Lifecycle::WaitingChildren { .. });
        let waits_unbegun = waits && lease(was).is_some() && ran.is_none();
        let began = failed
            || waits_unbegun
            || runs.is_some() && !resumed && (ran.is_none() || is.epoch != was.epoch);
        let keeps_attempt =
            is.lifecycle.readiness().is_some_and(|ready| ready.suspended_attempt.is_some())
                || matches!(is.lifecycle, Lifecycle::Delayed { suspended_attempt: Some(_), .. });
        let gave_back = runs.is_none()
            && ran.is_some()
            && !keeps_attempt
            && matches!(
                step.command,
                Command::Release(_) | Command::Snooze(_) | Command::Revoke(_)
            );
        let expected = match (is.execution == was.execution, began, gave_back) {
            // The attempt of a workflow continues in its next execution.
            (false, _, _) if is.workflow.is_some() => was.attempts,
            (false, _, _) => 0,
            (true, true, _) => was.attempts + 1,
            (true, false, true) => was.attempts - 1,
            (true, false, false) => was.attempts,
        };
        let numbered = runs.is_none_or(|attempt| attempt.number == is.attempts);
        ensure(is.attempts == expected && numbered, || format!("{was:?} became {is:?}"))
    })
}

/// A resumed attempt is the one that was paused.
fn is_same_attempt(paused: &SuspendedAttempt, active: &ActiveAttempt) -> bool {
    (paused.number, paused.began_at) == (active.number, active.began_at)
}

fn a_lease_is_settled_once(step: &Step<'_>) -> Held {
    let (Some(fence), Some(outcome)) = (settles(step.command), settled(step.outcome)) else {
        return Ok(());
    };
    match step.ghost.settles.get(fence) {
        Some(first) => ensure(*first == outcome && step.changes.is_empty(), || {
            format!("{fence:?} was settled as {first:?}, and again as {outcome:?}")
        }),
        None => ensure(!step.changes.is_empty(), || format!("{fence:?}: nothing was settled")),
    }
}

/// A write under a fence counts only while its lease is alive. The one exception writes nothing: a
/// repeated settle gets the same response.
fn a_stale_fence_is_rejected(step: &Step<'_>) -> Held {
    let (settle, keep) = (settles(step.command), keeps(step.command));
    let Some(fence) = settle.or(keep).filter(|_| step.outcome.is_ok()) else { return Ok(()) };
    let repeated = settle.is_some() && step.ghost.settles.contains_key(fence);
    let latest = step.ghost.fences.iter().rfind(|issued| issued.task == fence.task);
    let held = is_held(step.before, fence, step.after.now) && latest == Some(fence);
    ensure(repeated || held, || format!("{:?} was accepted", step.command))
}

fn a_limit_holds_unless_it_was_lowered(step: &Step<'_>) -> Held {
    step.after.lanes.iter().try_for_each(|(name, lane)| {
        let Some(concurrency) = lane.concurrency else { return Ok(()) };
        let was = step.before.lanes.get(name).and_then(|lane| lane.concurrency);
        let most = concurrency.limit.unwrap_or(u32::MAX).max(was.map_or(0, |was| was.running));
        ensure(concurrency.running <= most, || format!("{was:?} became {concurrency:?}"))
    })
}

/// A task as people see it: without the due time of the sweep, and without the mark of its first
/// child, whose creation has its own event.
fn seen(task: Option<&Task>) -> Option<Task> {
    task.map(|task| Task { due_at: None, has_children: true, ..task.clone() })
}

/// A lane as people see it: without its counters, whose changes have other events.
fn seen_lane(lane: Option<&Lane>) -> Option<(windlass_core::LaneState, Option<u32>)> {
    lane.map(|lane| (lane.state, lane.concurrency.and_then(|concurrency| concurrency.limit)))
}

fn every_change_has_an_event(step: &Step<'_>) -> Held {
    let (before, after, events) = (step.before, step.after, &step.changes.events);
    for id in before.tasks.keys().chain(after.tasks.keys()) {
        let changed = seen(before.tasks.get(id)) != seen(after.tasks.get(id));
        let logged = events.iter().any(|event| event.task.as_ref().is_some_and(|(of, _)| of == id));
        let (was, is) = (before.tasks.get(id), after.tasks.get(id));
        let logged = logged || workflows::needs_no_entry(step, was, is);
        ensure(logged || !changed, || format!("no event for {id}"))?;
    }
    for (name, lane) in &after.lanes {
        let was = before.lanes.get(name);
        let changed = was.is_some() && seen_lane(was) != seen_lane(Some(lane));
        let of_lane = |event: &&Event| event.lane == *name && event.task.is_none();
        let quota = |event: &Event| matches!(event.change, windlass_core::Change::QuotaSet { .. });
        let logged = events.iter().filter(of_lane).any(|event| !quota(event));
        ensure(logged == changed, || format!("{was:?} became {lane:?}: {events:?}"))?;
    }
    events.iter().try_for_each(|event| {
        // In a race the other commit may have advanced the time.
        let at = event.at == after.now || step.raced;
        ensure(at && is_written(step, event), || format!("{event:?} has no change"))
    })
}

fn is_written(step: &Step<'_>, event: &Event) -> bool {
    let Some((id, _)) = &event.task else { return true };
    let key = match &event.change {
        Change::Signalled { .. } => Mailbox::key_of(&event.tenant, id),
        Change::WaitpointCreated { id } => Waitpoint::key_of(&event.tenant, id),
        Change::EffectClaimed { provider, name } | Change::EffectSettled { provider, name } => {
            Effect::key_of(&event.tenant, &format!("task/{id}"), provider, name)
        }
        Change::StatusChanged { .. } => {
            WorkflowProperty::key_of(&event.tenant, id, WorkflowProperty::STATUS)
        }
        _ => windlass_core::TaskKey::new(&event.tenant, id).row_key(),
    };
    let version = |view: &View| view.tables.row(&key).map(|row| row.version);
    version(step.before) != version(step.after)
}

fn versions_rise(step: &Step<'_>) -> Held {
    step.after.tables.rows().try_for_each(|row| {
        let Some(was) = step.before.tables.row(&row.key) else { return Ok(()) };
        let written = step.changes.updates.iter().any(|update| update.row.key == row.key);
        let fits = if written { row.version > was.version } else { row == was };
        ensure(fits, || format!("{was:?} became {row:?}"))
    })
}

fn a_claimable_task_wakes_a_claim(step: &Step<'_>) -> Held {
    step.after.tasks.values().filter(|task| step.after.is_claimable(task)).try_for_each(|task| {
        let was = step.before.tasks.get(&task.id);
        if was.is_some_and(|was| was.epoch == task.epoch && !step.before.is_awaited(was)) {
            return Ok(());
        }
        let woken = |wake: &Wake| {
            wake.lane == task.lane && wake.route.as_ref().is_none_or(|route| *route == task.route)
        };
        ensure(step.changes.wakes.keys().any(woken), || format!("no claim is woken for {task:?}"))
    })
}

fn a_sweep_leaves_nothing_due(step: &Step<'_>) -> Held {
    let Ok(Outcome::Swept { next_due, .. }) = step.outcome else { return Ok(()) };
    // A scan is trusted only for its rows: rows added by a race are left to the next sweep.
    if step.raced {
        return Ok(());
    }
    let appointment = |row: &windlass_core::Row| {
        let table = row.key.table;
        match table.spec().value(row, table.due()?.spec().indexed_when) {
            windlass_core::Value::Int(micros) => Some(Timestamp::from_micros(*micros)),
            _ => None,
        }
    };
    let first = step.after.tables.rows().filter_map(appointment).min();
    // The end of a parent or a child leaves work to the next sweep, which is announced.
    let family = |row: &windlass_core::Row| match row.key.table {
        Table::Children => true,
        Table::Task => step
            .after
            .tasks
            .values()
            .any(|task| task.has_children && task.task_key().row_key() == row.key),
        _ => false,
    };
    let due = |row: &&windlass_core::Row| appointment(row) <= Some(step.after.now);
    let due = |row: &&windlass_core::Row| appointment(row).is_some() && due(row);
    let later = step.after.tables.rows().filter(due).all(family);
    ensure(later && first == *next_due, || format!("said {next_due:?}, found {first:?}"))
}

fn a_granted_task_is_leased_by_its_worker(step: &Step<'_>) -> Held {
    step.pairs().try_for_each(|(was, is)| {
        let Lifecycle::Granted { worker, until, .. } = &was.lifecycle else { return Ok(()) };
        let Some(lease) = lease(is) else { return Ok(()) };
        let in_time = until.is_none_or(|until| step.after.now < until);
        ensure(in_time && lease.worker == *worker, || format!("{was:?} became {is:?}"))
    })
}

fn a_worker_declared_dead_holds_no_lease(step: &Step<'_>) -> Held {
    // A scan is trusted only for its rows: leases added by a race expire at their own time.
    if step.raced || !matches!(step.command, Command::Sweep(_)) {
        return Ok(());
    }
    let gone = step.before.workers.keys().filter(|id| !step.after.workers.contains_key(id));
    let leases: Vec<&Lease> = step.after.tasks.values().filter_map(lease).collect();
    gone.into_iter().try_for_each(|id| {
        let holds = leases.iter().any(|lease| lease.registered && lease.worker == *id);
        ensure(!holds, || format!("{id} is dead and holds {leases:?}"))
    })
}

/// A sweep ends an expired lease, an attempt that timed out, or the leases of a worker that missed
/// its heartbeats.
fn a_lease_ends_early_only_with_its_worker(step: &Step<'_>) -> Held {
    if !matches!(step.command, Command::Sweep(_)) {
        return Ok(());
    }
    let now = step.after.now;
    step.pairs().try_for_each(|(was, is)| {
        let Some(held) = lease(was).filter(|_| lease(is).is_none()) else { return Ok(()) };
        let timeout_at = held.attempt.as_ref().and_then(|attempt| attempt.timeout_at);
        let deadlines = timeout_at.into_iter().chain(was.deadline).chain([held.expires_at]);
        let silent = step.before.workers.get(&held.worker);
        let dead = held.registered && silent.is_some_and(|worker| worker.due_at <= now);
        let due = deadlines.min().is_some_and(|due| due <= now);
        let orphaned = is.parent.is_some() && is.lifecycle.public() == PublicState::Cancelled;
        ensure(dead || due || orphaned, || format!("{was:?} became {is:?}"))
    })
}

fn a_result_never_changes(step: &Step<'_>) -> Held {
    step.before.tables.payloads().try_for_each(|(key, was)| {
        let unchanged = match step.after.tables.payload(key) {
            Some(is) => is == was,
            None => {
                !step.after.tasks.contains_key(&key.task)
                    || messages::is_of_a_message(step, key.slot.as_str())
                    || workflows::is_of_a_past_execution(step.after, key)
            }
        };
        ensure(unchanged, || format!("{key:?} changed"))
    })
}

fn an_ended_parent_has_no_more_children(step: &Step<'_>) -> Held {
    let made = step.after.tasks.values().filter(|task| !step.before.tasks.contains_key(&task.id));
    let made: Vec<&Task> = made.collect();
    made.iter().filter_map(|task| Some((task, task.parent.as_ref()?))).try_for_each(|(task, id)| {
        let parent = step.before.tasks.get(id).or_else(|| step.after.tasks.get(id));
        let open = parent.is_some_and(|parent| parent.lifecycle.ended_at().is_none());
        ensure(open, || format!("{task:?} is a child of {parent:?}"))
    })
}

fn a_parent_is_woken_by_the_last_child(step: &Step<'_>) -> Held {
    let resumptions = |id: &TaskId| {
        let resumed = |event: &&Event| {
            matches!(&event.change, Change::Resumed { cause: ResumeCause::Children, .. })
                && event.task.as_ref().is_some_and(|(of, _)| of == id)
        };
        step.changes.events.iter().filter(resumed).count()
    };
    step.pairs().try_for_each(|(was, is)| {
        let waited = matches!(was.lifecycle, Lifecycle::WaitingChildren { .. });
        let open = step.after.children.get(&is.id).map_or(0, |children| children.open);
        let woken = waited && is.lifecycle.public() == PublicState::Resumable;
        let expected = usize::from(woken);
        ensure(resumptions(&is.id) == expected && (!woken || open == 0), || {
            format!("{was:?} became {is:?} with {open} open, resumed {}", resumptions(&is.id))
        })
    })
}
