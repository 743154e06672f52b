//! What holds of every state, whatever led to it. Each is a named function over a decoded shelf.

use std::collections::BTreeMap;

use windlass_core::command::Claim;
use windlass_core::{
    Admission, AnyRecord, Bookmark, Children, Filed, Gate, Keyring, Lane, LaneGate, LaneName,
    LaneState, Lifecycle, Log, Mailbox, Message, Node, Offer, Outcome, Queue, Row, Shelf, Table,
    TagFilter, Task, TaskId, Timestamp, Waitpoint, Why, Worker, read_row, why,
};

use crate::mail;

/// A shelf at a moment, with its records read.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) shelf: Shelf,
    pub(crate) now: Timestamp,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) lanes: BTreeMap<LaneName, Lane>,
    pub(crate) queues: Vec<Queue>,
}

pub(crate) type Held = Result<(), String>;
pub(crate) type Invariant = (&'static str, fn(&View) -> Held);

pub(crate) const ALWAYS: &[Invariant] = &[
    ("columns are a function of the body", columns_are_a_function_of_the_body),
    ("every waiting task is listed", every_waiting_task_is_listed),
    ("a lane counts its queues", a_lane_counts_its_queues),
    ("a gate counts its leases", a_gate_counts_its_leases),
    ("attempts stay within the maximum", attempts_stay_within_the_maximum),
    ("due_at is never late", due_at_is_never_late),
    ("a waiting task says why", a_waiting_task_says_why),
    ("payloads have an owner", payloads_have_an_owner),
    ("a mailbox counts what it holds", mail::a_mailbox_counts_what_it_holds),
    ("messages have what they carry", mail::messages_have_what_they_carry),
    ("a waitpoint has had one message", mail::a_waitpoint_has_had_one_message),
    ("nobody waits for what is there", mail::nobody_waits_for_what_is_there),
];

/// Checks one condition; the words are made only when it fails.
pub(crate) fn ensure(holds: bool, words: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(words()) }
}

fn decoded<R: Filed>(row: &Row) -> R {
    let record = read_row::<R>(row.schema, &row.body).expect("core wrote this row");
    (*record).clone()
}

fn any(row: &Row) -> AnyRecord {
    match row.key.table {
        Table::Task => Task::into_any(decoded::<Task>(row).into()),
        Table::Lane => Lane::into_any(decoded::<Lane>(row).into()),
        Table::Queue => Queue::into_any(decoded::<Queue>(row).into()),
        Table::Admission => Admission::into_any(decoded::<Admission>(row).into()),
        Table::Log => Log::into_any(decoded::<Log>(row).into()),
        Table::Node => Node::into_any(decoded::<Node>(row).into()),
        Table::Mailbox => Mailbox::into_any(decoded::<Mailbox>(row).into()),
        Table::Message => Message::into_any(decoded::<Message>(row).into()),
        Table::Waitpoint => Waitpoint::into_any(decoded::<Waitpoint>(row).into()),
        Table::Keyring => Keyring::into_any(decoded::<Keyring>(row).into()),
        Table::Children => Children::into_any(decoded::<Children>(row).into()),
        Table::Gate => Gate::into_any(decoded::<Gate>(row).into()),
        Table::Worker => Worker::into_any(decoded::<Worker>(row).into()),
        Table::Bookmark => Bookmark::into_any(decoded::<Bookmark>(row).into()),
    }
}

pub(crate) const fn hands_out(state: LaneState) -> bool {
    matches!(state, LaneState::Active | LaneState::Draining)
}

impl View {
    pub(crate) fn new(shelf: Shelf, now: Timestamp) -> Self {
        let (mut tasks, mut lanes, mut queues) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for row in shelf.rows() {
            match any(row) {
                AnyRecord::Task(task) => drop(tasks.insert(task.id.clone(), (*task).clone())),
                AnyRecord::Lane(lane) => drop(lanes.insert(lane.name.clone(), (*lane).clone())),
                AnyRecord::Queue(queue) => queues.push((*queue).clone()),
                AnyRecord::Admission(_)
                | AnyRecord::Log(_)
                | AnyRecord::Node(_)
                | AnyRecord::Mailbox(_)
                | AnyRecord::Message(_)
                | AnyRecord::Waitpoint(_)
                | AnyRecord::Keyring(_)
                | AnyRecord::Children(_)
                | AnyRecord::Gate(_)
                | AnyRecord::Worker(_)
                | AnyRecord::Bookmark(_) => {}
            }
        }
        Self { shelf, now, tasks, lanes, queues }
    }

    /// Whether a claim that offers everything could be handed this task.
    pub(crate) fn is_claimable(&self, task: &Task) -> bool {
        let open = |gate: LaneGate| gate.limit.is_none_or(|limit| gate.running < limit);
        matches!(task.lifecycle, Lifecycle::Waiting { .. })
            && self
                .lanes
                .get(&task.lane)
                .is_some_and(|lane| hands_out(lane.state) && lane.gate.is_none_or(open))
    }

    /// The invariants that do not hold here.
    pub(crate) fn broken(&self) -> Vec<(&'static str, String)> {
        let failed = |(name, check): &Invariant| Some((*name, check(self).err()?));
        ALWAYS.iter().filter_map(failed).collect()
    }
}

fn columns_are_a_function_of_the_body(view: &View) -> Held {
    view.shelf.rows().try_for_each(|row| {
        let record = any(row);
        ensure(row.columns == record.columns() && row.key == record.key(), || format!("{row:?}"))
    })
}

fn every_waiting_task_is_listed(view: &View) -> Held {
    let waiting = |task: &&Task| matches!(task.lifecycle, Lifecycle::Waiting { .. });
    view.tasks.values().filter(waiting).try_for_each(|task| {
        let line = |queue: &Queue| queue.lane == task.lane && queue.route == task.route;
        let listed = view.queues.iter().any(line);
        ensure(listed, || format!("{} waits outside the directory {:?}", task.id, view.queues))
    })
}

fn a_lane_counts_its_queues(view: &View) -> Held {
    view.lanes.values().try_for_each(|lane| {
        let listed = view.queues.iter().filter(|queue| queue.lane == lane.name).count();
        ensure(lane.queues as usize == listed, || format!("{lane:?} has {listed} lines"))
    })
}

fn a_gate_counts_its_leases(view: &View) -> Held {
    view.lanes.values().try_for_each(|lane| {
        let Some(gate) = lane.gate else { return Ok(()) };
        let counted = |task: &&Task| match &task.lifecycle {
            Lifecycle::Active(lease) => task.lane == lane.name && lease.gated,
            _ => false,
        };
        let leased = view.tasks.values().filter(counted).count();
        ensure(gate.running as usize == leased, || format!("{gate:?} with {leased} leases"))
    })
}

pub(crate) fn max_attempts(task: &Task) -> u32 {
    let policy = &task.policy;
    policy.retry.as_ref().map_or(policy.max_reclaims + 1, |retry| retry.max_attempts)
}

fn attempts_stay_within_the_maximum(view: &View) -> Held {
    view.tasks.values().try_for_each(|task| {
        let max = max_attempts(task);
        let resting = match &task.lifecycle {
            Lifecycle::Delayed { .. } => true,
            other => other.turn().is_some_and(|turn| turn.paused.is_none()),
        };
        let most = if resting { max - 1 } else { max };
        ensure(task.attempts <= most, || format!("{} of {max} attempts: {task:?}", task.attempts))
    })
}

/// The moment at which a task needs the engine; none when it only needs a worker.
fn needed_at(task: &Task) -> Option<Timestamp> {
    let own = match &task.lifecycle {
        Lifecycle::Waiting(_) | Lifecycle::Gated(_) | Lifecycle::WaitingChildren { .. } => None,
        Lifecycle::Reserved { until, .. } => *until,
        Lifecycle::Suspended(suspension) => suspension.timeout.map(|timeout| timeout.at),
        Lifecycle::Delayed { until, .. } => Some(*until),
        Lifecycle::Active(lease) => {
            let timeout_at = lease.run.as_ref().and_then(|run| run.timeout_at);
            Some(timeout_at.map_or(lease.expires_at, |at| at.min(lease.expires_at)))
        }
        Lifecycle::Completed { at }
        | Lifecycle::Failed { at, .. }
        | Lifecycle::Cancelled { at, .. }
        | Lifecycle::Expired { at } => return Some(at.plus_ms(task.policy.retention_ms)),
    };
    own.into_iter().chain(task.deadline).min()
}

fn due_at_is_never_late(view: &View) -> Held {
    view.tasks.values().try_for_each(|task| {
        let Some(needed_at) = needed_at(task) else { return Ok(()) };
        let in_time = task.due_at.is_some_and(|due_at| due_at <= needed_at);
        ensure(in_time, || format!("{:?} is after {needed_at}: {task:?}", task.due_at))
    })
}

/// A task that says it is in line must be what a claim is given next; one that names an obstacle
/// must not be.
fn a_waiting_task_says_why(view: &View) -> Held {
    let offer = Offer { tags: TagFilter::Any, ..Offer::default() };
    for lane in view.lanes.values() {
        let offers = std::slice::from_ref(&offer);
        let alive = |task: &&Task| task.deadline.is_none_or(|deadline| view.now < deadline);
        let in_line = view.tasks.values().filter(|task| task.lane == lane.name).filter(alive);
        let in_line =
            in_line.filter(|task| why(task, Some(lane), Some(offers)) == Why::InLine).count();
        let lanes = vec![lane.name.clone()];
        let claim = Claim { lanes, offer: offer.clone(), limit: 1_000, ..Claim::new("why") };
        let (answer, _) = view.shelf.attempt(view.now, &claim.into());
        let Ok(Outcome::Claimed(tasks)) = answer else { return Err(format!("{answer:?}")) };
        let free = lane
            .gate
            .and_then(|gate| Some(gate.limit?.saturating_sub(gate.running) as usize))
            .unwrap_or(usize::MAX);
        let expected = in_line.min(free);
        ensure(tasks.len() == expected, || format!("{in_line} in line, got {}", tasks.len()))?;
    }
    Ok(())
}

fn payloads_have_an_owner(view: &View) -> Held {
    for task in view.tasks.values() {
        for key in task.input_key().into_iter().chain(task.result_key()) {
            ensure(view.shelf.payload(&key).is_some(), || format!("{key:?} is lost"))?;
        }
    }
    view.shelf.payloads().try_for_each(|(key, _)| {
        ensure(view.tasks.contains_key(&key.task), || format!("{key:?} was left behind"))
    })
}
