use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Change, Event};
use crate::gate::{Gate, GateKey, GateKind, Owner};
use crate::lane::Lane;
use crate::name::{Tenant, WorkerId};
use crate::primitive::place::{enter, is_listable};
use crate::queue::Queue;
use crate::row::Range;
use crate::task::{Lease, Lifecycle, Task, Turn};
use crate::time::Timestamp;
use crate::world::{Halt, Wake, World, unless_quarantined};

/// How many a gate moves at once. What is left over is due at once, and comes with the next sweep.
const PAGE: u32 = 1_000;

/// How many that cannot be let through a gate looks past.
const PASSED_OVER: u32 = 32;

/// When to look again at a gate that could not move what stands at it: something there is written
/// by a version that this one cannot read.
const POSTPONED_MS: u64 = 60_000;

/// How a gate counts a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Admitted,
    Running,
}

fn stage(task: &Task) -> Option<Stage> {
    match &task.lifecycle {
        Lifecycle::Gated(_) => Some(Stage::Waiting),
        Lifecycle::Waiting(_) | Lifecycle::Reserved { .. } => Some(Stage::Admitted),
        Lifecycle::Active(_) => Some(Stage::Running),
        _ => None,
    }
}

impl Gate {
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

    /// Where a task stands that it has let through: in its lane's queue, or kept for the owner.
    fn inside(&self, turn: Turn, now: Timestamp) -> Lifecycle {
        match self.owner(now) {
            Some(owner) => Lifecycle::Reserved { turn, worker: owner.worker.clone(), until: None },
            None => Lifecycle::Waiting(turn),
        }
    }

    /// Notes that a lease has ended. A holder that was not heard of keeps nothing.
    fn ended(&mut self, lease: &Lease, lost: bool, now: Timestamp) {
        if let Some(owner) = self.owner.as_mut().filter(|owner| owner.worker == lease.worker) {
            owner.until = if lost { now } else { now.plus_ms(owner.idle_ms) };
        }
    }
}

fn of_task(world: &mut World, tenant: &Tenant, key: &GateKey) -> Result<Gate, Halt> {
    let known = world.get::<Gate>(&key.row_key(tenant))?;
    let fresh = || Gate::new(tenant, key.kind(), key.name());
    Ok(known.map_or_else(fresh, |known| (*known).clone()))
}

/// Puts a gate back, or takes it away when nobody needs it. One that could not be made whole is
/// looked at again later, not at once.
pub(super) fn save(world: &mut World, mut gate: Gate, whole: bool) -> Result<(), Halt> {
    let now = world.now();
    let key = Gate::key_of(&gate.tenant, gate.kind, &gate.name);
    let known = world.get::<Gate>(&key)?;
    gate.due_at = gate.next_due(now);
    if !whole {
        gate.due_at = gate.due_at.map(|due_at| due_at.max(now.plus_ms(POSTPONED_MS)));
    }
    if gate.is_unused() {
        if known.is_some() {
            world.remove(&key);
        }
    } else if known.is_none_or(|known| *known != gate) {
        world.put::<Gate>(gate);
    }
    Ok(())
}

/// Moves a task with a gate from where it stood to where it is to stand: one that could run is let
/// through, kept for the owner of its session, or put behind the gate. [`open`] follows, once the
/// task stands there.
pub(super) fn pass(
    world: &mut World,
    before: Option<&Task>,
    task: &mut Task,
) -> Result<bool, Halt> {
    let Some(key) = task.gate.clone() else { return Ok(false) };
    let (now, was, is) = (world.now(), before.and_then(stage), stage(task));
    if was.is_none() && is.is_none() {
        return Ok(false);
    }
    world.prefetch(Queue::key_of(&task.tenant, &task.lane, &task.route));
    world.prefetch(Lane::key_of(&task.tenant, &task.lane));
    let mut gate = of_task(world, &task.tenant, &key)?;
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
        task.lifecycle = if admitted { gate.inside(turn, now) } else { Lifecycle::Gated(turn) };
        if let Lifecycle::Reserved { worker, .. } = &task.lifecycle {
            let kept = Change::Kept { worker: worker.clone() };
            world.emit(Event::of_task(task, now, kept));
        }
    }
    gate.count(stage(task));
    save(world, gate, true)?;
    Ok(true)
}

/// Whether the lease that a task had was taken from a holder that was not heard of.
fn is_lost(before: &Task, task: &Task) -> bool {
    let settled = task.last_settle.as_ref().is_some_and(|last| last.epoch == before.epoch);
    !settled && task.reclaims > before.reclaims
}

/// Sees to it that those stand inside a gate that may run, in the order of its line: lets go of a
/// session whose owner is idle, takes back what is too much, and lets the next ones through.
pub(crate) fn open(world: &mut World, tenant: &Tenant, key: &GateKey) -> Result<(), Halt> {
    let Some(known) = world.get::<Gate>(&key.row_key(tenant))? else { return Ok(()) };
    let (mut gate, now, mut whole) = ((*known).clone(), world.now(), true);
    if gate.owner.is_some() && gate.owner(now).is_none() {
        gate.owner = None;
        align(world, &gate, key)?;
    }
    if gate.is_overfull(now) {
        whole &= recall(world, &mut gate, key)?;
    }
    whole &= admit(world, &mut gate, key)?;
    save(world, gate, whole)
}

/// Lets the next ones through; says whether as many could be moved as there is room for.
fn admit(world: &mut World, gate: &mut Gate, key: &GateKey) -> Result<bool, Halt> {
    let now = world.now();
    let waiting = u32::try_from(gate.waiting).unwrap_or(u32::MAX);
    let wanted = gate.room(now).min(waiting).min(PAGE);
    if wanted == 0 {
        return Ok(true);
    }
    let heads = heads(world, &gate.tenant, key, wanted)?;
    for head in &heads {
        let Lifecycle::Gated(turn) = &head.lifecycle else { continue };
        let lifecycle = gate.inside(turn.clone(), now);
        let change = match &lifecycle {
            Lifecycle::Reserved { worker, .. } => Change::Kept { worker: worker.clone() },
            _ => Change::Admitted,
        };
        gate.uncount(Some(Stage::Waiting));
        gate.count(Some(Stage::Admitted));
        world.emit(Event::of_task(head, now, change));
        enter(world, Task { lifecycle, ..(**head).clone() })?;
    }
    Ok(heads.len() == wanted as usize)
}

/// The first of the line that can be let through. A few that cannot are passed over.
fn heads(
    world: &mut World,
    tenant: &Tenant,
    key: &GateKey,
    wanted: u32,
) -> Result<Vec<Arc<Task>>, Halt> {
    let line = Task::behind(tenant, key);
    let mut found = Vec::new();
    for most in [wanted, wanted + PASSED_OVER] {
        found = listable(world, &line, most)?;
        if found.len() >= wanted as usize {
            break;
        }
    }
    found.truncate(wanted as usize);
    Ok(found)
}

fn listable(world: &mut World, line: &Range, most: u32) -> Result<Vec<Arc<Task>>, Halt> {
    let mut found = world.scan::<Task>(line, most as usize)?;
    for task in &found {
        world.prefetch(Queue::key_of(&task.tenant, &task.lane, &task.route));
        world.prefetch(Lane::key_of(&task.tenant, &task.lane));
    }
    let can = found.iter().map(|task| is_listable(world, task)).collect::<Vec<_>>();
    let mut can = can.into_iter().collect::<Result<Vec<bool>, Halt>>()?.into_iter();
    found.retain(|_| can.next() == Some(true));
    Ok(found)
}

/// Takes back the last of those that were let through, as many as are too many; says whether that
/// could be done.
fn recall(world: &mut World, gate: &mut Gate, key: &GateKey) -> Result<bool, Halt> {
    let now = world.now();
    let kept = Gate { admitted: 0, ..gate.clone() }.room(now).min(gate.admitted);
    let wanted = (gate.admitted - kept).min(PAGE);
    // Those that stay are looked past, unless they are a crowd.
    let past = if kept > PAGE { 0 } else { kept };
    let inside =
        world.scan::<Task>(&Task::let_through(&gate.tenant, key), (past + wanted) as usize)?;
    let mut recalled = 0;
    for task in inside.iter().skip(past as usize) {
        let (Lifecycle::Waiting(turn) | Lifecycle::Reserved { turn, until: None, .. }) =
            &task.lifecycle
        else {
            continue;
        };
        let lifecycle = Lifecycle::Gated(turn.clone());
        gate.uncount(Some(Stage::Admitted));
        gate.count(Some(Stage::Waiting));
        recalled += 1;
        world.emit(Event::of_task(task, now, Change::Recalled));
        // A claim may have passed over it and over what stands behind it.
        let (tenant, lane) = (task.tenant.clone(), task.lane.clone());
        world.wake(Wake { tenant, lane, route: Some(task.route.clone()) });
        enter(world, Task { lifecycle, ..(**task).clone() })?;
    }
    Ok(recalled == wanted)
}

/// Keeps those that were let through for the owner of the session, or for nobody when it has none.
fn align(world: &mut World, gate: &Gate, key: &GateKey) -> Result<(), Halt> {
    if gate.admitted == 0 {
        return Ok(());
    }
    let now = world.now();
    let inside = Task::let_through(&gate.tenant, key);
    for task in listable(world, &inside, gate.admitted)? {
        let (change, turn) = match &task.lifecycle {
            Lifecycle::Reserved { turn, worker, until: None } => {
                (Change::Freed { worker: worker.clone() }, turn)
            }
            Lifecycle::Waiting(turn) => (Change::Admitted, turn),
            _ => continue,
        };
        let lifecycle = gate.inside(turn.clone(), now);
        let change = match &lifecycle {
            same if *same == task.lifecycle => continue,
            Lifecycle::Reserved { worker, .. } => Change::Kept { worker: worker.clone() },
            _ => change,
        };
        world.emit(Event::of_task(&task, now, change));
        enter(world, Task { lifecycle, ..(*task).clone() })?;
    }
    Ok(())
}

/// Whether the gates of these tasks let a worker start them, asked in this order.
pub(crate) fn startable(
    world: &mut World,
    tasks: &[Arc<Task>],
    worker: &WorkerId,
) -> Result<Vec<bool>, Halt> {
    let now = world.now();
    for task in tasks {
        if let Some(key) = &task.gate {
            world.prefetch(key.row_key(&task.tenant));
        }
    }
    let mut counts: BTreeMap<&GateKey, u32> = BTreeMap::new();
    let mut may = Vec::with_capacity(tasks.len());
    for task in tasks {
        let Some(key) = &task.gate else {
            may.push(true);
            continue;
        };
        let Some(gate) = unless_quarantined(world.get::<Gate>(&key.row_key(&task.tenant)))? else {
            may.push(false);
            continue;
        };
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

/// Counts a task that was just leased as started. Whoever takes the first task of a session owns
/// it.
pub(crate) fn start(world: &mut World, task: &Task, idle_ms: u64) -> Result<(), Halt> {
    let (Some(key), Lifecycle::Active(lease)) = (&task.gate, &task.lifecycle) else {
        return Ok(());
    };
    let now = world.now();
    let mut gate = of_task(world, &task.tenant, key)?;
    gate.uncount(Some(Stage::Admitted));
    gate.charge(1, now);
    if gate.kind == GateKind::Session {
        let worker = lease.worker.clone();
        let changed = gate.owner(now).is_none();
        gate.owner = Some(Owner { worker, until: now.plus_ms(idle_ms), idle_ms });
        if changed {
            align(world, &gate, key)?;
        }
    }
    gate.count(Some(Stage::Running));
    save(world, gate, true)
}
