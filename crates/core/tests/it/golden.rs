//! Bytes that exist in databases. A body that cannot be read, or that is written differently, is a
//! change of format and needs a schema number, not another golden file.

use std::collections::BTreeSet;

use windlass_core::command::{
    CancelHeld, Claim, Complete, Create, Delay, Fail, NewTask, Release, Snooze, Suspend,
    WaitChildren,
};
use windlass_core::{
    Admission, Backoff, Change, Children, Command, ConcurrencyLimit, Condition, Effect, Execution,
    FailureClass, Fence, Keyring, Lane, LaneState, Lifecycle, Limiter, Log, LogEvent, Mailbox,
    Message, Node, Payload, PublicState, ReadyRoute, RecordedCommand, ReferenceTables, Retry,
    RetryPolicy, Settled, StepOutcome, StoredRecord, SubscriptionCursor, Table, Task, TaskKey,
    Tenant, Timestamp, TurnRecord, Value, Waitpoint, Worker, WorkflowInput, WorkflowProperty,
    read_row,
};

const TASKS: &str = include_str!("golden/task.jsonl");
const LANES: &str = include_str!("golden/lane.jsonl");
const CHANGES: &str = include_str!("golden/change.jsonl");

/// Reads every line, writes it again, and compares the bytes.
fn same_bytes<R: StoredRecord>(lines: &str) -> usize {
    assert_eq!(R::SCHEMA, 1, "a higher schema needs its own golden lines");
    for line in lines.lines() {
        let record = read_row::<R>(1, line).unwrap_or_else(|| panic!("cannot read {line}"));
        let written = serde_json::to_string(&*record).expect("it was read from JSON");
        assert_eq!(written, line);
        columns_are_what_their_spec_says(&*record);
    }
    lines.lines().count()
}

fn columns_are_what_their_spec_says<R: StoredRecord>(record: &R) {
    let spec = R::TABLE.spec();
    assert!(record.key().iter().all(|value| matches!(value, Value::Text(_))), "{record:?}");
    for (name, value) in spec.columns.iter().zip(record.columns()) {
        let is_number = spec.numbers.contains(name);
        let fits = match value {
            Value::Null => true,
            Value::Int(_) => is_number,
            Value::Text(_) => !is_number,
        };
        assert!(fits, "{name} of {record:?}");
    }
    assert!(spec.numbers.iter().all(|name| spec.columns.contains(name)));
}

#[test]
fn every_record_is_written_as_it_was_read() {
    for table in Table::ALL {
        let lines = match table {
            Table::Task => same_bytes::<Task>(TASKS),
            Table::Lane => same_bytes::<Lane>(LANES),
            Table::ReadyRoute => same_bytes::<ReadyRoute>(include_str!("golden/ready_route.jsonl")),
            Table::Admission => same_bytes::<Admission>(include_str!("golden/admission.jsonl")),
            Table::Log => same_bytes::<Log>(include_str!("golden/log.jsonl")),
            Table::Node => same_bytes::<Node>(include_str!("golden/node.jsonl")),
            Table::Mailbox => same_bytes::<Mailbox>(include_str!("golden/mailbox.jsonl")),
            Table::Message => same_bytes::<Message>(include_str!("golden/message.jsonl")),
            Table::Waitpoint => same_bytes::<Waitpoint>(include_str!("golden/waitpoint.jsonl")),
            Table::Keyring => same_bytes::<Keyring>(include_str!("golden/keyring.jsonl")),
            Table::Children => same_bytes::<Children>(include_str!("golden/children.jsonl")),
            Table::ConcurrencyLimit => {
                same_bytes::<ConcurrencyLimit>(include_str!("golden/concurrency_limit.jsonl"))
            }
            Table::Worker => same_bytes::<Worker>(include_str!("golden/worker.jsonl")),
            Table::SubscriptionCursor => {
                same_bytes::<SubscriptionCursor>(include_str!("golden/subscription_cursor.jsonl"))
            }
            Table::Effect => same_bytes::<Effect>(include_str!("golden/effect.jsonl")),
            Table::Limiter => same_bytes::<Limiter>(include_str!("golden/limiter.jsonl")),
            Table::Execution => same_bytes::<Execution>(include_str!("golden/execution.jsonl")),
            Table::WorkflowProperty => {
                same_bytes::<WorkflowProperty>(include_str!("golden/workflow_property.jsonl"))
            }
        };
        assert!(lines > 0, "{table:?} has no golden record");
    }
}

/// A store writes the same bytes: apart from columns, the row of a record is its body.
#[test]
fn a_row_holds_the_golden_body() {
    for line in LANES.lines() {
        let lane = read_row::<Lane>(1, line).unwrap();
        let mut tables = ReferenceTables::default();
        let tenant = lane.tenant.clone();
        let (name, state) = (lane.name.clone(), LaneState::Draining);
        let key = Lane::key_of(&tenant, &name);
        let mut row = rows_of_a_lane(&tenant, &name);
        row.body = line.to_owned();
        tables.plant(row);
        let set = windlass_core::command::SetLaneState { tenant, lane: name, state };
        tables.execute(Timestamp::from_millis(2), &set.into()).unwrap();
        let was = format!("\"state\":\"{}\"", lane.state.as_str());
        let expected = line.replace(&was, "\"state\":\"draining\"");
        assert_eq!(tables.row(&key).unwrap().body, expected);
    }
}

fn rows_of_a_lane(tenant: &Tenant, name: &windlass_core::LaneName) -> windlass_core::Row {
    let mut tables = ReferenceTables::default();
    let new = NewTask { lane: name.clone(), ..NewTask::new("t", "k") };
    let create = Create { tenant: tenant.clone(), tasks: vec![new] };
    tables.execute(Timestamp::from_millis(1), &create.into()).expect("it is the first");
    tables.row(&Lane::key_of(tenant, name)).expect("a lane is created with its first task").clone()
}

fn golden_tasks() -> Vec<Task> {
    let read = |line| read_row::<Task>(1, line).expect("a golden line is read");
    TASKS.lines().map(|line| (*read(line)).clone()).collect()
}

/// Exhaustive without a wildcard: a variant that is added must be given a number, and a line.
fn number_of_settled(settled: &Settled) -> usize {
    match settled {
        Settled::Completed => 0,
        Settled::RetryAt(_) => 1,
        Settled::Failed => 2,
        Settled::SnoozedUntil(_) => 3,
        Settled::Released => 4,
        Settled::Cancelled => 5,
        Settled::Suspended => 6,
        Settled::WaitingChildren => 7,
        Settled::ContinuedAsNew => 8,
    }
}

fn number_of_class(class: FailureClass) -> usize {
    match class {
        FailureClass::Transient => 0,
        FailureClass::Permanent => 1,
        FailureClass::Crash => 2,
        FailureClass::Timeout => 3,
        FailureClass::Cancelled => 4,
    }
}

fn number_of_backoff(backoff: Backoff) -> usize {
    match backoff {
        Backoff::Fixed { .. } => 0,
        Backoff::Exponential { .. } => 1,
        Backoff::Linear { .. } => 2,
    }
}

fn number_of_change(change: &Change) -> usize {
    match change {
        Change::Created => 0,
        Change::Claimed { .. } => 1,
        Change::Begun { .. } => 2,
        Change::Renewed { .. } => 3,
        Change::Completed { .. } => 4,
        Change::RetryScheduled { .. } => 5,
        Change::Failed { .. } => 6,
        Change::Snoozed { .. } => 7,
        Change::Released { .. } => 8,
        Change::Cancelled { .. } => 9,
        Change::Promoted => 10,
        Change::LeaseLost { .. } => 11,
        Change::Expired => 12,
        Change::PriorityChanged { .. } => 13,
        Change::Replayed { .. } => 14,
        Change::Deleted => 15,
        Change::LaneStateChanged { .. } => 16,
        Change::LaneLimited { .. } => 17,
        Change::Unblocked => 21,
        Change::BlockedAgain => 22,
        Change::SessionGranted { .. } => 23,
        Change::GrantReleased { .. } => 24,
        Change::QuotaSet { .. } => 25,
        Change::Progressed { .. } => 18,
        Change::Signalled { .. } => 19,
        Change::WaitingChildren { .. } => 20,
        Change::Granted { .. } => 26,
        Change::GrantExpired { .. } => 27,
        Change::Revoked { .. } => 28,
        Change::WaitpointCreated { .. } => 29,
        Change::Suspended { .. } => 30,
        Change::Resumed { .. } => 31,
        Change::Escalated => 32,
        Change::EffectClaimed { .. } => 33,
        Change::EffectSettled { .. } => 34,
        Change::StatusChanged { .. } => 35,
        Change::TurnCommitted { .. } => 36,
        Change::CancelRequested { .. } => 37,
        Change::ContinuedAsNew { .. } => 38,
    }
}

fn number_of_lane_state(state: LaneState) -> usize {
    match state {
        LaneState::Active => 0,
        LaneState::Paused => 1,
        LaneState::Draining => 2,
        LaneState::Disabled => 3,
    }
}

#[track_caller]
fn all_seen(numbers: impl Iterator<Item = usize>, count: usize) {
    assert_eq!(numbers.collect::<BTreeSet<_>>(), (0..count).collect());
}

#[test]
fn the_golden_records_cover_every_variant() {
    let tasks = golden_tasks();
    let states: BTreeSet<PublicState> = tasks.iter().map(|t| t.lifecycle.public()).collect();
    assert_eq!(states, PublicState::ALL.iter().copied().collect());
    let leases: BTreeSet<(bool, bool)> = tasks
        .iter()
        .filter_map(|task| match &task.lifecycle {
            Lifecycle::Active(lease) => {
                Some((lease.attempt.is_some(), lease.counted_by_lane_limit))
            }
            _ => None,
        })
        .collect();
    assert_eq!(leases, BTreeSet::from([(false, false), (true, false), (true, true)]));
    let settles = tasks.iter().filter_map(|task| task.last_settle.as_ref());
    all_seen(settles.map(|settle| number_of_settled(&settle.result)), 9);
    let policies: Vec<_> = tasks.iter().filter_map(|task| task.policy.retry.as_ref()).collect();
    all_seen(policies.iter().flat_map(|p| &p.retry_on).map(|&class| number_of_class(class)), 5);
    all_seen(policies.iter().map(|policy| number_of_backoff(policy.backoff)), 3);
    let lanes = LANES.lines().map(|line| read_row::<Lane>(1, line).unwrap().state);
    all_seen(lanes.map(number_of_lane_state), 4);
}

#[test]
fn every_change_is_written_as_it_was_read() {
    let mut numbers = Vec::new();
    for line in CHANGES.lines() {
        let change: Change = serde_json::from_str(line).unwrap();
        assert_eq!(change.body(), line);
        let tag = format!("{{\"event\":\"{}\"", change.name());
        assert!(line.starts_with(&tag), "{line} is not named {}", change.name());
        numbers.push(number_of_change(&change));
    }
    all_seen(numbers.into_iter(), 39);
}

fn number_of_command(command: &RecordedCommand) -> usize {
    match command {
        RecordedCommand::Activity { .. } => 0,
        RecordedCommand::LocalActivity { .. } => 1,
        RecordedCommand::Timer { .. } => 2,
        RecordedCommand::Child { .. } => 3,
        RecordedCommand::StartDetached { .. } => 4,
        RecordedCommand::WaitSignal { .. } => 5,
        RecordedCommand::Signal { .. } => 6,
        RecordedCommand::Cancel { .. } => 7,
        RecordedCommand::Patch { .. } => 8,
    }
}

fn number_of_input(input: &WorkflowInput) -> usize {
    match input {
        WorkflowInput::Message { .. } => 0,
        WorkflowInput::Cancel { .. } => 1,
        WorkflowInput::StepCompletion { outcome, .. } => match outcome {
            StepOutcome::Completed { .. } => 2,
            StepOutcome::Failed { .. } => 3,
            StepOutcome::Cancelled { .. } => 4,
            StepOutcome::Expired => 5,
            StepOutcome::Fired => 6,
        },
    }
}

/// A history is retained as long as its workflow runs, which may be for years.
#[test]
fn every_row_of_a_history_is_written_as_it_was_read() {
    let (mut commands, mut inputs) = (Vec::new(), Vec::new());
    for line in include_str!("golden/turn_record.jsonl").lines() {
        let row: TurnRecord = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&row).unwrap(), line);
        commands.extend(row.commands.iter().map(number_of_command));
        inputs.extend(row.inputs.iter().map(number_of_input));
    }
    all_seen(commands.into_iter(), 9);
    all_seen(inputs.into_iter(), 7);
}

#[test]
fn a_log_entry_is_written_as_it_was_read() {
    let line = concat!(
        r#"{"seq":7,"at":1000000,"tenant":"default","lane":"l","task":"t1","kind":"email","#,
        r#""category":"lease","name":"claimed","#,
        r#""body":"{\"event\":\"claimed\",\"epoch\":1,\"worker\":\"w1\"}"}"#
    );
    let logged: LogEvent = serde_json::from_str(line).unwrap();
    assert_eq!(serde_json::to_string(&logged).unwrap(), line);
    assert_eq!(
        logged.change(),
        Some(Change::Claimed { epoch: 1, worker: "w1".into(), attempt: None })
    );
}

/// The labels of a task are stored beside the change, and are no part of it.
#[test]
fn the_labels_of_a_task_are_written_with_its_events() {
    let mut tables = ReferenceTables::default();
    let mut new = NewTask::new("t", "k");
    new.labels = [("region".to_owned(), "eu".to_owned())].into();
    for new in [new, NewTask::new("u", "k")] {
        tables.execute(Timestamp::from_millis(1), &Create::one(new).into()).unwrap();
    }
    let claim = Claim { limit: 2, ..Claim::new("w") };
    tables.execute(Timestamp::from_millis(1), &claim.into()).unwrap();
    let found: Vec<(String, usize)> =
        tables.events_after(0).map(|logged| (logged.body.clone(), logged.labels().len())).collect();
    let plain = |body: &str| (body.to_owned(), 0);
    let labelled = |body: &str| (body.to_owned(), 1);
    let expected = [
        labelled(r#"{"event":"created","labels":{"region":"eu"}}"#),
        plain(r#"{"event":"created"}"#),
        labelled(concat!(
            r#"{"event":"claimed","epoch":1001,"worker":"w","attempt":1,"#,
            r#""labels":{"region":"eu"}}"#
        )),
        plain(r#"{"event":"claimed","epoch":1001,"worker":"w","attempt":1}"#),
    ];
    assert_eq!(found, expected);
    assert!(tables.events_after(0).all(|logged| logged.change().is_some()));
}

/// Fields with a default may be missing in the bodies of an older version.
#[test]
fn a_body_without_defaulted_fields_is_read() {
    let line = concat!(
        r#"{"tenant":"default","id":"t1","kind":"email","lane":"l","created_at":1,"#,
        r#""started_at":1,"fingerprint":"00112233445566778899aabbccddeeff","#,
        r#""policy":{"max_lost_leases":1,"max_replays":1,"retention_ms":1},"#,
        r#""lifecycle":{"state":"waiting","ready_at":1},"due_at":null}"#
    );
    let task = read_row::<Task>(1, line).unwrap();
    assert_eq!((task.priority, task.epoch, task.route.as_str()), (0, 0, ""));
    let unsaid =
        line.replace(r#""policy":{"max_lost_leases":1,"max_replays":1,"retention_ms":1},"#, "");
    let policy = read_row::<Task>(1, &unsaid).unwrap().policy.clone();
    let defaults = (policy.max_lost_leases, policy.max_replays, policy.retention_ms);
    assert_eq!(defaults, (100, 100, 604_800_000), "the defaults of this version");
}

/// The shape of the tables is in migrations that are never edited.
#[test]
fn tables_have_the_columns_that_migrations_name() {
    let rows = [
        (
            "task: tenant id | kind lane route state rank ready_at due_at created_at ended_at list \
             listed_at parent open_parent",
            "TaskReady(tenant lane route rank ready_at id / ready_at) \
             TaskDue(due_at tenant id / due_at) \
             TaskList(tenant list rank listed_at id / list) \
             TaskOpenChild(tenant open_parent id / open_parent)",
        ),
        ("lane: tenant name | state contended", ""),
        (
            "ready_route: tenant lane route | closing due_at",
            "ReadyRouteByLane(tenant lane route / route) \
             ReadyRouteDue(due_at tenant lane route / due_at)",
        ),
        ("admission: tenant scope key | due_at", "AdmissionDue(due_at tenant scope key / due_at)"),
        ("log: name | floor", ""),
        ("node: id | name seen_at due_at", "NodeDue(due_at id / due_at)"),
        ("mailbox: tenant task | messages contended", ""),
        (
            "message: tenant task seq | name due_at",
            "MessageOfTask(tenant task seq / seq) MessageDue(due_at tenant task seq / due_at)",
        ),
        ("waitpoint: tenant id | task state expires_at", "WaitpointOfTask(tenant task id / task)"),
        ("keyring: tenant | due_at", "KeyringDue(due_at tenant / due_at)"),
        (
            "children: tenant parent | open contended due_at",
            "ChildrenDue(due_at tenant parent / due_at)",
        ),
        (
            "concurrency_limit: tenant kind name | blocked running owner contended due_at",
            "ConcurrencyLimitDue(due_at tenant kind name / due_at) \
             ConcurrencyLimitOwned(tenant owner kind name / owner)",
        ),
        ("worker: tenant id | seen_at due_at", "WorkerDue(due_at tenant id / due_at)"),
        ("subscription_cursor: tenant name | seq", ""),
        (
            "effect: tenant owner provider name | due_at",
            "EffectOfOwner(tenant owner provider name / owner) \
             EffectDue(due_at tenant owner provider name / due_at)",
        ),
        ("limiter: tenant name | contended due_at", "LimiterDue(due_at tenant name / due_at)"),
        (
            "execution: tenant task number | due_at",
            "ExecutionOfTask(tenant task number / number) \
             ExecutionDue(due_at tenant task number / due_at)",
        ),
        (
            "workflow_property: tenant task name | ",
            "WorkflowPropertyOfTask(tenant task name / name)",
        ),
    ];
    assert_eq!(rows.len(), Table::ALL.len());
    for ((columns, indexes), table) in rows.into_iter().zip(Table::ALL) {
        let spec = table.spec();
        let (key, rest) = (spec.key.join(" "), spec.columns.join(" "));
        assert_eq!(format!("{}: {key} | {rest}", spec.name), columns);
        let index = |i: &windlass_core::IndexSpec| {
            format!("{:?}({} / {})", i.index, i.columns.join(" "), i.indexed_when)
        };
        assert_eq!(spec.indexes.iter().map(index).collect::<Vec<_>>().join(" "), indexes);
    }
}

/// Reference tables that hold the one task `t`.
fn with_task(new: NewTask) -> ReferenceTables {
    let mut tables = ReferenceTables::default();
    tables.execute(Timestamp::from_millis(1), &Create::one(new).into()).expect("it is the first");
    tables
}

fn the_key() -> TaskKey {
    TaskKey::new(&Tenant::default(), &"t".into())
}

fn the_task(tables: &ReferenceTables) -> Task {
    let row = tables.row(&the_key().row_key()).expect("it was created");
    (*read_row::<Task>(row.schema, &row.body).expect("core wrote it")).clone()
}

fn settled_as(settle: impl Fn(Fence) -> Command) -> String {
    let (mut tables, now) = (with_task(NewTask::new("t", "k")), Timestamp::from_millis(2));
    tables.execute(now, &Claim::new("w").into()).expect("a task waits");
    let child = NewTask { parent: Some("t".into()), ..NewTask::new("c", "k") };
    tables.execute(now, &Create::one(child).into()).expect("its parent is open");
    tables.execute(now, &settle(the_task(&tables).fence())).expect("it is leased");
    the_task(&tables).last_settle.expect("it was settled").digest.to_string()
}

/// A repeat may reach a newer node than the first request did, so digests are bytes of the format.
#[test]
fn digests_are_stable() {
    let result = || Some(Payload::new("text/plain", *b"ok"));
    let class = FailureClass::Transient;
    let retry = Retry::After { ms: 5 };
    let rows: [(&str, String); 8] = [
        (
            "2fbc29ba87a981bfcb38ec9fd3b013ee",
            settled_as(|fence| Complete { fence, result: result() }.into()),
        ),
        (
            "c532d051afb76d9bbb9d1db791041ace",
            settled_as(|fence| Complete { fence, result: None }.into()),
        ),
        (
            "3dd0b64363cb6881575338c52451b902",
            settled_as(|fence| Fail { fence, class, reason: "no".into(), retry }.into()),
        ),
        (
            "7fd7b9f43ceedf719849bdcfea5d831b",
            settled_as(|fence| Snooze { fence, delay_ms: 5 }.into()),
        ),
        ("66da81af6912b8d909a568714dc7ca01", settled_as(|fence| Release { fence }.into())),
        (
            "f8249f07ae6dddc0d4edf24daa0b0abc",
            settled_as(|fence| CancelHeld { fence, reason: "no".into() }.into()),
        ),
        (
            "cf7f4cb8aab58d85c506b61b85f4f127",
            settled_as(|fence| Suspend::new(fence, Condition::signal("go")).into()),
        ),
        ("18a992d94a494d81b5497f0e3ca46ce5", settled_as(|fence| WaitChildren { fence }.into())),
    ];
    for (expected, found) in rows {
        assert_eq!(found, expected);
    }
}

#[test]
fn fingerprints_are_stable() {
    let mut full = NewTask::new("t", "email");
    full.payload = Some(Payload::json("{}"));
    full.priority = 3;
    full.delay = Delay::Until { at: Timestamp::from_millis(2) };
    full.deadline_ms = Some(60_000);
    full.labels.insert("region".into(), "eu".into());
    full.capabilities.insert("gpu".into());
    full.tag = Some("blue".into());
    full.policy.retry = Some(RetryPolicy::exponential(5));
    for (new, expected) in [
        (NewTask::new("t", "k"), "5eb68b67bca22c1354966685b2094caf"),
        (full, "424f8bfbc012b07ab2226f89d30fb41c"),
    ] {
        assert_eq!(the_task(&with_task(new)).fingerprint.to_string(), expected);
    }
    let child = NewTask { parent: Some("p".into()), ..NewTask::new("t", "k") };
    let mut tables = ReferenceTables::default();
    let tasks = vec![NewTask::new("p", "k"), child];
    let create = Create { tenant: Tenant::default(), tasks };
    tables.execute(Timestamp::from_millis(1), &create.into()).expect("they are the first");
    let found = the_task(&tables).fingerprint.to_string();
    assert_eq!(found, "55ca79bcb5f7f974ba7c5a299601e7ff", "of a child");
}
