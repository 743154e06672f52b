use crate::concurrency_limit::ConcurrencyLimit;
use crate::lane::Lane;
use crate::mailbox::Mailbox;
use crate::primitive::{children, concurrency_limit, quota, redeliver};
use crate::ready_route::ReadyRoute;
use crate::task::{Lifecycle, Task};
use crate::world::{Halt, Wake, World, unless_quarantined};

/// The interval at which the sweep checks whether a ready route is still in use.
pub(crate) const ROUTE_CHECK_MS: u64 = 3_600_000;

/// Saves a task that changed its state: sets its due time, lists a waiting task under its ready
/// route and wakes waiting claims. Updates its concurrency limit, its parent and its children.
pub(crate) fn transition_to(world: &mut World, mut task: Task) -> Result<(), Halt> {
    let before = world.get::<Task>(&task.task_key().row_key())?;
    let moved = concurrency_limit::on_transition(world, before.as_deref(), &mut task)?;
    let had_ended = before.filter(|before| before.lifecycle.ended_at().is_some());
    let ends = had_ended.is_none() && task.lifecycle.ended_at().is_some();
    if let Some(before) = had_ended.filter(|_| task.lifecycle.ended_at().is_none()) {
        children::on_replay(world, &before, &mut task)?;
    }
    save_and_wake(world, task.clone())?;
    // Its parent and children may share its concurrency limit, so the task must be saved first.
    if ends {
        children::on_end(world, &task)?;
    }
    match task.limit_key.as_ref().filter(|_| moved) {
        Some(key) => concurrency_limit::rebalance(world, &task.tenant, key),
        None => Ok(()),
    }
}

/// Saves a task in its present state, with its due time, its ready route and its wake.
pub(super) fn save_and_wake(world: &mut World, mut task: Task) -> Result<(), Halt> {
    task.due_at = task.next_due();
    let wake = |route| Wake { tenant: task.tenant.clone(), lane: task.lane.clone(), route };
    match task.lifecycle {
        Lifecycle::Waiting(_) => {
            list_ready_route(world, &task)?;
            world.wake(wake(Some(task.route.clone())));
        }
        // Only the granted worker may claim it, and its claim is unknown here: wake the lane.
        Lifecycle::Granted { .. } => world.wake_granted(wake(None), task.task_key().row_key()),
        _ => {}
    }
    world.put::<Task>(task);
    Ok(())
}

fn list_ready_route(world: &mut World, task: &Task) -> Result<(), Halt> {
    let route =
        world.get::<ReadyRoute>(&ReadyRoute::key_of(&task.tenant, &task.lane, &task.route))?;
    match route {
        Some(queue) if !queue.closing => return Ok(()),
        Some(_) => {}
        None => {
            let mut lane = lane(world, task)?;
            lane.ready_routes += 1;
            world.put::<Lane>(lane);
        }
    }
    world.put::<ReadyRoute>(ReadyRoute {
        tenant: task.tenant.clone(),
        lane: task.lane.clone(),
        route: task.route.clone(),
        closing: false,
        due_at: world.now().plus_ms(ROUTE_CHECK_MS),
    });
    Ok(())
}

/// Prefetches the records that [`are_related_records_readable`] checks.
pub(crate) fn prefetch_related_records(world: &mut World, task: &Task) {
    if task.has_mailbox {
        world.prefetch(Mailbox::key_of(&task.tenant, &task.id));
    }
    world.prefetch(Lane::key_of(&task.tenant, &task.lane));
    world.prefetch(ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
    let limits = task.limit_key.iter().map(|key| key.row_key(&task.tenant));
    for key in limits.chain(quota::keys_counting(task)) {
        world.prefetch(key);
    }
}

/// Whether this version can read all records that change with a task.
pub(crate) fn are_related_records_readable(world: &mut World, task: &Task) -> Result<bool, Halt> {
    prefetch_related_records(world, task);
    if task.has_mailbox {
        let mailbox = world.get::<Mailbox>(&Mailbox::key_of(&task.tenant, &task.id));
        if unless_quarantined(mailbox)?.is_none() {
            return Ok(false);
        }
    }
    if task.lifecycle.ended_at().is_some() {
        return Ok(true);
    }
    let limits = task.limit_key.iter().map(|key| key.row_key(&task.tenant));
    for key in limits.chain(quota::keys_counting(task)) {
        if unless_quarantined(world.get::<ConcurrencyLimit>(&key))?.is_none() {
            return Ok(false);
        }
    }
    Ok(is_route_readable(world, task)? && children::is_readable(world, task)?)
}

/// Whether this version can read the lane and the ready route of a task.
pub(super) fn is_route_readable(world: &mut World, task: &Task) -> Result<bool, Halt> {
    let lane = world.get::<Lane>(&Lane::key_of(&task.tenant, &task.lane));
    let queue = world.get::<ReadyRoute>(&ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
    Ok(unless_quarantined(lane)?.is_some() && unless_quarantined(queue)?.is_some())
}

/// Ends the lease of a task in other records: frees its slots, and counts a delivery of each
/// in-flight message that was not consumed.
pub(crate) fn end_lease(world: &mut World, task: &Task) -> Result<(), Halt> {
    let Lifecycle::Active(lease) = &task.lifecycle else { return Ok(()) };
    redeliver(world, task, &lease.in_flight, None, true)?;
    quota::end_lease(world, task)?;
    if !lease.counted_by_lane_limit {
        return Ok(());
    }
    let mut lane = lane(world, task)?;
    if let Some(concurrency) = &mut lane.concurrency {
        concurrency.running = concurrency.running.saturating_sub(1);
        world.put::<Lane>(lane);
        world.wake(Wake { tenant: task.tenant.clone(), lane: task.lane.clone(), route: None });
    }
    Ok(())
}

/// Notifies the lease holder of a task that its lease is revoked.
pub(crate) fn notify_holder(world: &mut World, task: &Task) {
    if let Lifecycle::Active(_) = &task.lifecycle {
        world.wake(Wake::to_holder(task));
    }
}

fn lane(world: &mut World, task: &Task) -> Result<Lane, Halt> {
    let existing = world.get::<Lane>(&Lane::key_of(&task.tenant, &task.lane))?;
    Ok(existing.map_or_else(|| Lane::new(&task.tenant, &task.lane), |lane| (*lane).clone()))
}
