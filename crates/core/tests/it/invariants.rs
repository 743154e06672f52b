//! Invariants of every state, however it was reached. Each is a function over decoded tables.

use std::collections::BTreeMap;

use windlass_core::command::Claim;
use windlass_core::{
    Admission, AnyRecord, Children, ConcurrencyLimit, Effect, Execution, Keyring, Lane, LaneLimit,
    LaneName, LaneState, Lifecycle, Limiter, Log, Mailbox, Message, Node, Outcome, ReadyRoute,
    ReferenceTables, Row, SESSIONS, StoredRecord, SubscriptionCursor, Table, TagFilter, Task,
    TaskId, Timestamp, Waitpoint, Why, WhyContext, Worker, WorkerCapabilities, WorkerId,
    WorkflowProperty, read_row, why,
};

use crate::{messages, requests, workflows};

/// Reference tables at a point in time, with its records decoded.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) tables: ReferenceTables,
    pub(crate) now: Timestamp,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) lanes: BTreeMap<LaneName, Lane>,
    pub(crate) queues: Vec<ReadyRoute>,
    pub(crate) children: BTreeMap<TaskId, Children>,
    pub(crate) limits: Vec<ConcurrencyLimit>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
}

pub(crate) type Held = Result<(), String>;
pub(crate) type Invariant = (&'static str, fn(&View) -> Held);

pub(crate) const ALWAYS: &[Invariant] = &[
    ("columns are a function of the body", columns_are_a_function_of_the_body),
    ("every waiting task is listed", every_waiting_task_is_listed),
    ("a lane counts its queues", a_lane_counts_its_queues),
    ("a lane limit counts its leases", a_lane_limit_counts_its_leases),
    ("attempts stay within the maximum", attempts_stay_within_the_maximum),
    ("due_at is never late", due_at_is_never_late),
    ("a waiting task says why", a_waiting_task_says_why),
    ("payloads have an owner", payloads_have_an_owner),
    ("children are counted", children_are_counted),
    ("a task waiting for children has one", a_task_waiting_for_children_has_one),
    ("an open child has its parent", an_open_child_has_its_parent),
    ("a limit counts its tasks", crate::limits::a_limit_counts_its_tasks),
    ("a quota counts its leases", crate::limits::a_quota_counts_its_leases),
    ("waiting tasks are admitted", crate::limits::waiting_tasks_are_admitted),
    ("a session runs at its owner", crate::limits::a_session_runs_at_its_owner),
    ("no unused limit remains", crate::limits::no_unused_limit_remains),
    ("a mailbox counts what it holds", messages::a_mailbox_counts_what_it_holds),
    ("buffered messages are counted", messages::buffered_messages_are_counted),
    ("messages have their payloads", messages::messages_have_their_payloads),
    ("a waitpoint has at most one message", messages::a_waitpoint_has_at_most_one_message),
    ("no task waits for a met condition", messages::no_task_waits_for_a_met_condition),
    ("a history has its rows", workflows::a_history_has_its_rows),
    ("executions have their workflow", workflows::executions_have_their_workflow),
    ("a step ends once", workflows::a_step_ends_once),
    ("an activity has its workflow", workflows::an_activity_has_its_workflow),
];

/// Checks one condition; the message is built only when it fails.
pub(crate) fn ensure(holds: bool, words: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(words()) }
}

fn decoded<R: StoredRecord>(row: &Row) -> R {
    let record = read_row::<R>(row.schema, &row.body).expect("core wrote this row");
    (*record).clone()
}

pub(crate) fn any(row: &Row) -> AnyRecord {
    match row.key.table {
        Table::Task => Task::into_any(decoded::<Task>(row).into()),
        Table::Lane => Lane::into_any(decoded::<Lane>(row).into()),
        Table::ReadyRoute => ReadyRoute::into_any(decoded::<ReadyRoute>(row).into()),
        Table::Admission => Admission::into_any(decoded::<Admission>(row).into()),
        Table::Log => Log::into_any(decoded::<Log>(row).into()),
        Table::Node => Node::into_any(decoded::<Node>(row).into()),
        Table::Mailbox => Mailbox::into_any(decoded::<Mailbox>(row).into()),
        Table::Message => Message::into_any(decoded::<Message>(row).into()),
        Table::Waitpoint => Waitpoint::into_any(decoded::<Waitpoint>(row).into()),
        Table::Keyring => Keyring::into_any(decoded::<Keyring>(row).into()),
        Table::Children => Children::into_any(decoded::<Children>(row).into()),
        Table::ConcurrencyLimit => {
            ConcurrencyLimit::into_any(decoded::<ConcurrencyLimit>(row).into())
        }
        Table::Worker => Worker::into_any(decoded::<Worker>(row).into()),
        Table::SubscriptionCursor => {
            SubscriptionCursor::into_any(decoded::<SubscriptionCursor>(row).into())
        }
        Table::Effect => Effect::into_any(decoded::<Effect>(row).into()),
        Table::Limiter => Limiter::into_any(decoded::<Limiter>(row).into()),
        Table::Execution => Execution::into_any(decoded::<Execution>(row).into()),
        Table::WorkflowProperty => {
            WorkflowProperty::into_any(decoded::<WorkflowProperty>(row).into())
        }
    }
}

pub(crate) const fn hands_out(state: LaneState) -> bool {
    matches!(state, LaneState::Active | LaneState::Draining)
}

impl View {
    pub(crate) fn new(tables: ReferenceTables, now: Timestamp) -> Self {
        let mut children = BTreeMap::new();
        let (mut tasks, mut lanes) = (BTreeMap::new(), BTreeMap::new());
        let (mut queues, mut limits) = (Vec::new(), Vec::new());
        let mut workers = BTreeMap::new();
        for row in tables.rows() {
            match any(row) {
                AnyRecord::Task(task) => drop(tasks.insert(task.id.clone(), (*task).clone())),
                AnyRecord::Lane(lane) => drop(lanes.insert(lane.name.clone(), (*lane).clone())),
                AnyRecord::ReadyRoute(queue) => queues.push((*queue).clone()),
                AnyRecord::Children(found) => {
                    children.insert(found.parent.clone(), (*found).clone());
                }
                AnyRecord::ConcurrencyLimit(limit) => limits.push((*limit).clone()),
                AnyRecord::Worker(worker) => {
                    workers.insert(worker.id.clone(), (*worker).clone());
                }
                AnyRecord::Admission(_)
                | AnyRecord::Log(_)
                | AnyRecord::Node(_)
                | AnyRecord::Mailbox(_)
                | AnyRecord::Message(_)
                | AnyRecord::Waitpoint(_)
                | AnyRecord::Keyring(_)
                | AnyRecord::SubscriptionCursor(_)
                | AnyRecord::Effect(_)
                | AnyRecord::Limiter(_)
                | AnyRecord::Execution(_)
                | AnyRecord::WorkflowProperty(_) => {}
            }
        }
        Self { tables, now, tasks, lanes, queues, children, limits, workers }
    }

    /// Whether a claim with all capabilities could lease this task.
    pub(crate) fn is_claimable(&self, task: &Task) -> bool {
        self.is_offered(task)
            && self.lanes.get(&task.lane).is_some_and(|lane| crate::limits::left_of(self, lane) > 0)
    }

    /// Whether a claim may be waiting for it.
    pub(crate) fn is_awaited(&self, task: &Task) -> bool {
        let rejected = |lane: &Lane| crate::limits::has_rejected(self, lane);
        !self.is_offered(task) || self.lanes.get(&task.lane).is_none_or(rejected)
    }

    /// Whether only quotas can keep it from a claim with all capabilities.
    fn is_offered(&self, task: &Task) -> bool {
        let open = |concurrency: LaneLimit| {
            concurrency.limit.is_none_or(|limit| concurrency.running < limit)
        };
        matches!(task.lifecycle, Lifecycle::Waiting(_) | Lifecycle::Granted { .. })
            && self
                .lanes
                .get(&task.lane)
                .is_some_and(|lane| hands_out(lane.state) && lane.concurrency.is_none_or(open))
    }

    /// The invariants that do not hold here.
    pub(crate) fn broken(&self) -> Vec<(&'static str, String)> {
        let failed = |(name, check): &Invariant| Some((*name, check(self).err()?));
        ALWAYS.iter().filter_map(failed).collect()
    }
}

fn columns_are_a_function_of_the_body(view: &View) -> Held {
    view.tables.rows().try_for_each(|row| {
        let record = any(row);
        ensure(row.columns == record.columns() && row.key == record.key(), || format!("{row:?}"))
    })
}

fn every_waiting_task_is_listed(view: &View) -> Held {
    let waiting = |task: &&Task| matches!(task.lifecycle, Lifecycle::Waiting { .. });
    view.tasks.values().filter(waiting).try_for_each(|task| {
        let line = |queue: &ReadyRoute| queue.lane == task.lane && queue.route == task.route;
        let listed = view.queues.iter().any(line);
        ensure(listed, || format!("{} is missing in the directory {:?}", task.id, view.queues))
    })
}

fn a_lane_counts_its_queues(view: &View) -> Held {
    view.lanes.values().try_for_each(|lane| {
        let listed = view.queues.iter().filter(|queue| queue.lane == lane.name).count();
        ensure(lane.ready_routes as usize == listed, || format!("{lane:?} has {listed} routes"))
    })
}

fn a_lane_limit_counts_its_leases(view: &View) -> Held {
    view.lanes.values().try_for_each(|lane| {
        let Some(concurrency) = lane.concurrency else { return Ok(()) };
        let counted = |task: &&Task| match &task.lifecycle {
            Lifecycle::Active(lease) => task.lane == lane.name && lease.counted_by_lane_limit,
            _ => false,
        };
        let leased = view.tasks.values().filter(counted).count();
        ensure(concurrency.running as usize == leased, || {
            format!("{concurrency:?} with {leased} leases")
        })
    })
}

pub(crate) fn max_attempts(task: &Task) -> u32 {
    let policy = &task.policy;
    policy.retry.as_ref().map_or(policy.max_lost_leases + 1, |retry| retry.max_attempts)
}

fn attempts_stay_within_the_maximum(view: &View) -> Held {
    view.tasks.values().try_for_each(|task| {
        let max = max_attempts(task);
        let ready_or_delayed = match &task.lifecycle {
            Lifecycle::Delayed { suspended_attempt: paused, .. } => paused.is_none(),
            other => other.readiness().is_some_and(|ready| ready.suspended_attempt.is_none()),
        };
        let most = if ready_or_delayed { max - 1 } else { max };
        ensure(task.attempts <= most, || format!("{} of {max} attempts: {task:?}", task.attempts))
    })
}

/// When a task needs the sweep; none when it only needs a worker.
fn needed_at(task: &Task) -> Option<Timestamp> {
    let own = match &task.lifecycle {
        Lifecycle::Waiting(_) | Lifecycle::Blocked(_) | Lifecycle::WaitingChildren { .. } => None,
        Lifecycle::Granted { until, .. } => *until,
        Lifecycle::Suspended(suspension) => suspension.timeout.map(|timeout| timeout.at),
        Lifecycle::Delayed { until, .. } => Some(*until),
        Lifecycle::Active(lease) => {
            let timeout_at = lease.attempt.as_ref().and_then(|attempt| attempt.timeout_at);
            Some(timeout_at.map_or(lease.expires_at, |at| at.min(lease.expires_at)))
        }
        Lifecycle::Completed { at }
        | Lifecycle::Failed { at, .. }
        | Lifecycle::Cancelled { at, .. }
        | Lifecycle::Expired { at } => return Some(at.plus_ms(task.policy.retention_ms)),
    };
    own.into_iter().chain(task.deadline).min()
}

/// An ended task that is retained for its parent or its children is re-checked every hour.
fn due_at_is_never_late(view: &View) -> Held {
    view.tasks.values().try_for_each(|task| {
        let Some(mut needed_at) = needed_at(task) else { return Ok(()) };
        if !is_open(task) && (task.parent.is_some() || task.has_children) {
            needed_at = needed_at.max(view.now.plus_ms(3_600_000));
        }
        let in_time = task.due_at.is_some_and(|due_at| due_at <= needed_at);
        ensure(in_time, || format!("{:?} is after {needed_at}: {task:?}", task.due_at))
    })
}

/// A task that is queued must be leased by the next claim; one that names an obstacle must not be.
fn a_waiting_task_says_why(view: &View) -> Held {
    let mut capabilities =
        WorkerCapabilities { tags: TagFilter::Any, ..WorkerCapabilities::default() };
    capabilities.names.insert(SESSIONS.to_owned());
    for lane in view.lanes.values() {
        let workers = Some(std::slice::from_ref(&capabilities));
        let context = WhyContext { lane: Some(lane), limits: &view.limits, workers, now: view.now };
        let alive = |task: &&Task| task.deadline.is_none_or(|deadline| view.now < deadline);
        let in_line = view.tasks.values().filter(|task| task.lane == lane.name).filter(alive);
        let in_line = in_line.filter(|task| why(task, &context) == Why::Queued).count();
        let lanes = vec![lane.name.clone()];
        let claim =
            Claim { lanes, capabilities: capabilities.clone(), limit: 1_000, ..Claim::new("why") };
        let (outcome, _) = view.tables.attempt(view.now, &claim.into());
        let Ok(Outcome::Claimed(tasks)) = outcome else { return Err(format!("{outcome:?}")) };
        let free = lane
            .concurrency
            .and_then(|concurrency| {
                Some(concurrency.limit?.saturating_sub(concurrency.running) as usize)
            })
            .unwrap_or(usize::MAX);
        let expected = in_line.min(free).min(crate::limits::left_of(view, lane));
        ensure(tasks.len() == expected, || format!("{in_line} queued, got {}", tasks.len()))?;
    }
    Ok(())
}

fn payloads_have_an_owner(view: &View) -> Held {
    for task in view.tasks.values() {
        for key in task.input_key().into_iter().chain(task.result_key()) {
            ensure(view.tables.payload(&key).is_some(), || format!("{key:?} is lost"))?;
        }
    }
    let (results, rest): (Vec<_>, Vec<_>) =
        view.tables.payloads().map(|(key, _)| key).partition(|key| requests::is_result(key));
    let expected = requests::stored_results(view);
    ensure(results.len() == expected, || format!("{results:?} of {expected} results"))?;
    // The result of an activity stays with the message that reports its end.
    let carried: Vec<_> = messages::all::<Message>(view).iter().map(Message::payload_key).collect();
    let mut rest = rest.into_iter().filter(|key| !carried.contains(&Some((*key).clone())));
    rest.try_for_each(|key| {
        // The payload of a buffered message may exist before its task: see below.
        let has_owner =
            view.tasks.contains_key(&key.task) || key.slot.as_str().starts_with("message/");
        ensure(has_owner, || format!("{key:?} was left behind"))
    })
}

fn is_open(task: &Task) -> bool {
    task.lifecycle.ended_at().is_none()
}

/// The children record exists as long as its parent, counts the open children, and is closed when
/// the parent has ended.
fn children_are_counted(view: &View) -> Held {
    for (id, children) in &view.children {
        let Some(parent) = view.tasks.get(id) else {
            return Err(format!("{children:?} has lost its parent"));
        };
        let of = view.tasks.values().filter(|task| task.parent.as_ref() == Some(id));
        let open = of.filter(|task| is_open(task)).count();
        ensure(children.open as usize == open, || format!("{children:?} has {open} open"))?;
        ensure(children.closed != is_open(parent), || format!("{children:?} of {parent:?}"))?;
        ensure(parent.has_children, || format!("{parent:?} lacks the mark of {children:?}"))?;
    }
    view.tasks.values().filter(|task| task.has_children).try_for_each(|task| {
        ensure(view.children.contains_key(&task.id), || format!("{task:?} has lost count"))
    })
}

fn a_task_waiting_for_children_has_one(view: &View) -> Held {
    let waits = |task: &&Task| matches!(task.lifecycle, Lifecycle::WaitingChildren { .. });
    view.tasks.values().filter(waits).try_for_each(|task| {
        let children = view.children.get(&task.id);
        ensure(children.is_some_and(|children| children.open > 0), || {
            format!("nothing will wake {task:?}: {children:?}")
        })
    })
}

fn an_open_child_has_its_parent(view: &View) -> Held {
    let open = view.tasks.values().filter(|task| is_open(task));
    open.filter_map(|task| Some((task, task.parent.as_ref()?))).try_for_each(|(task, parent)| {
        ensure(view.tasks.contains_key(parent), || format!("{task:?} has lost its parent"))
    })
}
