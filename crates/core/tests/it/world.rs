//! The effects of a batch: what a rejected or parked command leaves behind, and the combined result
//! of several commands on one record.

use windlass_core::command::{
    Cancel, Claim, Complete, Create, Delay, DeleteTask, Fail, LimitLane, NewMessage, NewTask,
    Release, Renew, Replay, SendMessages, Sweep, TrimLog,
};
use windlass_core::{
    ChangeSet, Command, Decided, FailureClass, Hints, Lane, LimitKey, Loaded, Log, Outcome,
    Payload, PublicState, ReadyRoute, ReferenceTables, Retry, Row, RowKey, Table, Task, Tenant,
    Timestamp, Version, VersionConflict, World, decide, probe, read_row,
};

use crate::batch::{self, Order, START, claim, claimed, fence, key, lane, new_task};

/// Task `held` is leased under epoch 2, `done` has ended, `w1` and `w2` wait; all in one lane.
fn tables() -> ReferenceTables {
    let mut tables = ReferenceTables::default();
    let create = |id: &str| Command::from(Create::one(new_task(id)));
    let script = [
        create("done"),
        claim(1).into(),
        Complete { fence: fence("done", 1), result: None }.into(),
        create("held"),
        claim(1).into(),
        Release { fence: fence("held", 1) }.into(),
        claim(1).into(),
        create("w1"),
        create("w2"),
    ];
    for command in script {
        tables.execute(START, &command).expect("a fixture is accepted");
    }
    tables
}

fn create(id: &str) -> Command {
    Create::one(NewTask { payload: Some(Payload::json("1")), ..new_task(id) }).into()
}

fn cancel(id: &str) -> Command {
    Cancel { task: key(id), reason: "stop".into() }.into()
}

fn fail(id: &str, epoch: u64, reason: &str) -> Command {
    let (class, retry) = (FailureClass::Transient, Retry::Policy);
    Fail { fence: fence(id, epoch), class, reason: reason.into(), retry }.into()
}

fn bulk(tasks: Vec<NewTask>) -> Command {
    Create { tenant: Tenant::default(), tasks }.into()
}

/// With its own route, so that its creation changes its lane as well.
fn tagged(id: &str) -> NewTask {
    NewTask { tag: Some("blue".into()), ..new_task(id) }
}

fn task_row(id: &str) -> RowKey {
    key(id).row_key()
}

fn run(tables: &ReferenceTables, commands: &[Command]) -> batch::Batch {
    batch::run(tables, START, Hints::default(), commands, Order::Fixed)
}

/// Splits what is checked from what is written.
fn parted(changes: ChangeSet) -> (Vec<(RowKey, Version)>, ChangeSet) {
    let reads = changes.reads.clone();
    (reads, ChangeSet { reads: Vec::new(), ..changes })
}

/// Rows of a rejected command, and the record that its rejection depends on.
#[test]
fn a_rejected_command_leaves_only_its_reads() {
    let dear = NewTask { priority: 9, ..new_task("held") };
    let tenant = Tenant::default();
    let nowhere = LimitLane { tenant, lane: "nowhere".into(), limit: Some(1) };
    let late = Complete { fence: fence("held", 1), result: Some(Payload::json("2")) };
    let rows: [(&str, Command, Option<RowKey>); 12] = [
        ("already_settled", late.into(), Some(task_row("held"))),
        ("stale_fence", fail("held", 7, "no"), Some(task_row("held"))),
        ("already_terminal", cancel("done"), Some(task_row("done"))),
        ("not_terminal", Replay { task: key("held"), execution: 0 }.into(), Some(task_row("held"))),
        ("not_terminal", DeleteTask { task: key("held") }.into(), Some(task_row("held"))),
        ("conflict", Create::one(dear.clone()).into(), Some(task_row("held"))),
        ("conflict", bulk(vec![new_task("x"), dear.clone()]), Some(task_row("held"))),
        ("conflict", bulk(vec![tagged("x"), dear]), Some(task_row("held"))),
        ("already_settled", fail("done", 1, "no"), Some(task_row("done"))),
        ("lane_not_found", nowhere.into(), None),
        ("invalid", fail("held", 2, "\0"), None),
        ("invalid", Claim { limit: 0, ..claim(1) }.into(), None),
    ];
    let tables = tables();
    let (reads, without) = parted(run(&tables, &[create("a"), claim(1).into()]).changes);
    for (code, rejected, read) in rows {
        let batch = run(&tables, &[create("a"), rejected.clone(), claim(1).into()]);
        let outcome = batch.outcomes[1].as_ref().map_err(|rejection| rejection.code());
        assert_eq!(outcome, Err(code), "{rejected:?}");
        let (all_reads, with) = parted(batch.changes);
        assert_eq!(with, without, "{rejected:?}");
        let expected = reads.iter().map(|(key, _)| key).chain(&read);
        let missing = |key: &&RowKey| !all_reads.iter().any(|(read, _)| read == *key);
        assert_eq!(expected.filter(missing).collect::<Vec<_>>(), Vec::<&RowKey>::new());
    }
}

#[test]
fn an_accepted_command_that_only_read_is_checked_too() {
    let again = Release { fence: fence("held", 1) };
    let rows: [Command; 2] = [Create::one(new_task("held")).into(), again.into()];
    for command in rows {
        let batch = run(&tables(), std::slice::from_ref(&command));
        assert!(batch.outcomes[0].is_ok(), "{command:?}: {:?}", batch.outcomes);
        assert!(batch.changes.is_empty(), "{command:?}");
        assert!(batch.changes.reads.iter().any(|(key, _)| *key == task_row("held")));
    }
}

/// Loads the rows of the other commands, without those that only the middle one needs.
fn loaded_for(tables: &ReferenceTables, commands: &[Command]) -> World {
    let mut world = World::new(START, Hints::default());
    for _ in 0..4 {
        commands.iter().for_each(|command| probe(&mut world, command));
        let Some(wanted) = world.take_load_request() else { break };
        let loaded = tables.load(&wanted);
        world.absorb(&wanted, loaded);
    }
    world
}

fn accept(world: &mut World, command: &Command) {
    assert!(matches!(decide(world, command), Decided::Ready(Ok(_))), "{command:?}");
}

fn middles() -> [Command; 6] {
    let elsewhere = Claim { lanes: vec![lane(), "other".into()], limit: 9, ..claim(9) };
    [
        elsewhere.into(),
        bulk(vec![new_task("b"), new_task("c")]),
        bulk(vec![tagged("b"), new_task("c")]),
        bulk(vec![new_task("held"), new_task("c")]),
        Sweep::default().into(),
        cancel("never-seen"),
    ]
}

/// The claim over two lanes leases from the first before it lacks the second; a bulk creates or
/// reads its first task before it lacks the second.
#[test]
fn a_parked_command_leaves_nothing() {
    let tables = tables();
    let (first, last) = (create("a"), Command::from(claim(1)));
    let held = Create::one(new_task("held")).into();
    let commands = [first.clone(), last.clone(), Create::one(tagged("b")).into(), held];
    let mut plain = loaded_for(&tables, &commands);
    accept(&mut plain, &first);
    accept(&mut plain, &last);
    let expected = plain.finish().0;
    for middle in middles() {
        let mut world = loaded_for(&tables, &commands);
        accept(&mut world, &first);
        assert_eq!(decide(&mut world, &middle), Decided::Parked, "{middle:?}");
        world.take_load_request().expect("it lacks something");
        accept(&mut world, &last);
        assert_eq!(world.finish().0, expected, "{middle:?}");
    }
}

/// Claims behind a parked claim neither lease what it picked nor respond as if it did not exist.
#[test]
fn picks_of_a_parked_claim_stay_reserved_for_the_round() {
    let tables = tables();
    let one = Command::from(claim(1));
    // A claim scans four lanes first; it has picked from them when it continues with the fifth.
    let near = vec![lane(), "o1".into(), "o2".into(), "o3".into()];
    let far = [near.clone(), vec!["o4".into()]].concat();
    let mut world = loaded_for(&tables, &[Claim { lanes: near, ..claim(9) }.into()]);
    assert_eq!(decide(&mut world, &Claim { lanes: far, ..claim(9) }.into()), Decided::Parked);
    assert_eq!(decide(&mut world, &one), Decided::Parked);
    world.take_load_request().expect("the first claim lacks a lane");
    let Decided::Ready(outcome) = decide(&mut world, &one) else { panic!("it lacks nothing") };
    assert_eq!(claimed(&outcome), ["w1"]);
}

#[test]
fn a_probe_changes_nothing() {
    let tables = tables();
    let (first, last) = (create("a"), Command::from(claim(1)));
    let renew = Renew { fence: fence("held", 2), lease_ms: 60_000 };
    let done = Complete { fence: fence("held", 2), result: Some(Payload::json("2")) };
    let probed: [Command; 6] = [
        create("b"),
        claim(5).into(),
        renew.into(),
        done.into(),
        DeleteTask { task: key("done") }.into(),
        cancel("a"),
    ];
    let commands: Vec<Command> = probed.iter().chain([&first, &last]).cloned().collect();
    let mut plain = loaded_for(&tables, &commands);
    accept(&mut plain, &first);
    accept(&mut plain, &last);
    let expected = plain.finish().0;
    for command in probed.iter().chain(&middles()) {
        let mut world = loaded_for(&tables, &commands);
        probe(&mut world, command);
        accept(&mut world, &first);
        probe(&mut world, command);
        accept(&mut world, &last);
        probe(&mut world, command);
        assert_eq!(world.finish().0, expected, "{command:?}");
    }
}

/// Half of an accepted command must never be committed: an abandon without a command in progress,
/// as after a panic between two commands, undoes nothing.
#[test]
fn an_abandon_undoes_no_accepted_command() {
    let tables = tables();
    let first = create("a");
    let mut plain = loaded_for(&tables, std::slice::from_ref(&first));
    accept(&mut plain, &first);
    let mut abandoned = loaded_for(&tables, std::slice::from_ref(&first));
    accept(&mut abandoned, &first);
    abandoned.abandon();
    assert_eq!(abandoned.finish().0, plain.finish().0);
}

#[test]
fn a_task_is_created_and_claimed_in_one_commit() {
    for order in [Order::Fixed, Order::Free] {
        let commands = [create("a"), claim(1).into()];
        let batch =
            batch::run(&ReferenceTables::default(), START, Hints::default(), &commands, order);
        assert_eq!(claimed(&batch.outcomes[1]), ["a"], "{order:?}");
        assert!(batch.rounds <= 3, "{order:?}: {} rounds", batch.rounds);
        let written = batch.changes.inserts.iter().find(|row| row.key == task_row("a"));
        let task = written.and_then(|row| read_row::<Task>(row.schema, &row.body));
        assert_eq!(task.map(|task| task.claims), Some(1));
        assert!(batch.changes.updates.is_empty());
    }
}

#[test]
fn a_task_created_and_deleted_in_one_batch_leaves_nothing() {
    let mut tables = ReferenceTables::default();
    let commands = [create("a"), cancel("a"), DeleteTask { task: key("a") }.into()];
    let batch = run(&tables, &commands);
    assert!(batch.outcomes.iter().all(Result::is_ok), "{:?}", batch.outcomes);
    let inserted: Vec<Table> = batch.changes.inserts.iter().map(|row| row.key.table).collect();
    assert_eq!(inserted, [Table::Lane, Table::ReadyRoute]);
    assert!(batch.changes.updates.is_empty() && batch.changes.deletes.is_empty());
    tables.commit(&batch.changes).expect("only this test writes to the reference tables");
    assert_eq!(tables.payloads().count(), 0);
    let names: Vec<String> = tables.events_after(0).map(|logged| logged.name).collect();
    assert_eq!(names, ["created", "cancelled", "deleted"]);
}

/// The payload of the live task must not be deleted with the deleted one.
#[test]
fn an_id_deleted_and_recreated_in_one_batch_keeps_its_payload() {
    for before in [vec![], vec![create("a"), cancel("a")]] {
        let mut tables = ReferenceTables::default();
        batch::commit(&mut tables, START, &before);
        let delete = Command::from(DeleteTask { task: key("a") });
        let both = [create("a"), cancel("a"), delete, create("a")];
        let commands = if before.is_empty() { &both[..] } else { &both[2..] };
        let outcomes = batch::commit(&mut tables, START.plus_ms(1), commands);
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(tables.payloads().count(), 1, "after {before:?}");
    }
}

#[test]
fn commands_of_one_batch_see_each_other() {
    let mut tables = ReferenceTables::default();
    let complete = |epoch| Command::from(Complete { fence: fence("a", epoch), result: None });
    let commands = [
        create("a"),
        claim(1).into(),
        claim(1).into(),
        complete(1),
        complete(1),
        fail("a", 1, "no"),
        Replay { task: key("a"), execution: 0 }.into(),
        claim(1).into(),
        complete(1),
        complete(2),
    ];
    let outcomes = batch::commit(&mut tables, START, &commands);
    assert_eq!(claimed(&outcomes[1]), ["a"]);
    assert!(claimed(&outcomes[2]).is_empty());
    assert_eq!(outcomes[3], outcomes[4]);
    assert_eq!(outcomes[5].as_ref().map_err(|r| r.code()), Err("already_settled"));
    assert_eq!(outcomes[6], Ok(Outcome::Replayed { execution: 1 }));
    assert_eq!(claimed(&outcomes[7]), ["a"]);
    assert_eq!(outcomes[8], outcomes[3], "the lease of epoch 1 is settled");
    assert!(outcomes[9].is_ok());
    let row = tables.row(&task_row("a")).expect("it was created");
    let task = read_row::<Task>(row.schema, &row.body).expect("core wrote it");
    assert_eq!((task.claims, task.lifecycle.public()), (2, PublicState::Completed));
}

/// The events that the responses report as trimmed are deleted, and no others.
#[test]
fn two_trims_in_one_batch_do_not_undo_each_other() {
    let mut start = ReferenceTables::default();
    for n in 0..6 {
        let at = START.plus_ms(n * 1_000);
        start.execute(at, &Create::one(new_task(&n.to_string())).into()).expect("it is fresh");
    }
    let now = START.plus_ms(10_000);
    let trim = |retention_ms, page| Command::from(TrimLog { retention_ms, page });
    for commands in
        [[trim(6_000, 100), trim(8_000, 100)], [trim(0, 2), trim(0, 2)], [trim(0, 100), trim(0, 2)]]
    {
        let mut tables = start.clone();
        let outcomes = batch::commit(&mut tables, now, &commands);
        let trimmed = outcomes.iter().map(|outcome| match outcome {
            Ok(Outcome::Trimmed { trimmed, .. }) => *trimmed as u64,
            other => panic!("not a trim: {other:?}"),
        });
        let floor = trimmed.sum::<u64>();
        let left: Vec<u64> = tables.events_after(0).map(|logged| logged.seq).collect();
        assert_eq!(left, (floor + 1..=6).collect::<Vec<_>>(), "{commands:?}");
        let row = tables.row(&Log::key_of()).expect("it was trimmed");
        let log = read_row::<Log>(row.schema, &row.body).expect("core wrote it");
        assert_eq!(log.floor, floor, "{commands:?}");
    }
}

/// An unreadable record is set aside; all others are swept.
#[test]
fn an_unreadable_record_does_not_stop_the_sweep() {
    let unreadable = |tables: &mut ReferenceTables, key: &RowKey| {
        let row = tables.row(key).expect("it exists").clone();
        tables.plant(Row { schema: 9, body: "{}".into(), ..row });
    };
    let (tenant, bad) = (Tenant::default(), "bad".into());
    let route = new_task("any").route();
    for broken in
        [task_row("in-bad"), Lane::key_of(&tenant, &bad), ReadyRoute::key_of(&tenant, &bad, &route)]
    {
        let mut tables = ReferenceTables::default();
        let mut in_bad = new_task("in-bad");
        in_bad.lane = bad.clone();
        for new in [in_bad, new_task("in-good")] {
            tables.execute(START, &Create::one(new).into()).expect("a fixture is accepted");
        }
        let limit = LimitLane { tenant: tenant.clone(), lane: bad.clone(), limit: Some(1) };
        tables.execute(START, &limit.into()).expect("a fixture is accepted");
        let everything = Claim { lanes: vec![bad.clone(), lane()], ..claim(9) };
        tables.execute(START, &everything.into()).expect("a fixture is accepted");
        unreadable(&mut tables, &broken);
        let outcome = tables.execute(START.plus_ms(30_000), &Sweep::default().into());
        assert!(outcome.is_ok(), "{broken:?}: {outcome:?}");
        let row = tables.row(&task_row("in-good")).expect("it was created");
        let task = read_row::<Task>(row.schema, &row.body).expect("core wrote it");
        assert_eq!(task.lifecycle.public(), PublicState::Waiting, "{broken:?}");
    }
}

/// Decides a command with as many loads as it takes.
fn decide_with(world: &mut World, tables: &ReferenceTables, command: &Command) {
    while let Decided::Parked = decide(world, command) {
        let wanted = world.take_load_request().expect("a parked command lacks something");
        let loaded = tables.load(&wanted);
        world.absorb(&wanted, loaded);
    }
}

/// A sweep scans a task that is not due yet and does not read it. Another batch blocks the task
/// behind its concurrency limit. A completion in the first batch then frees the limit and scans the
/// task there: the batch has seen two versions of it.
#[test]
fn a_batch_that_loads_two_versions_of_a_record_is_late() {
    let limit_key = Some(LimitKey::Concurrency("k".into()));
    let holder = NewTask { limit_key: limit_key.clone(), ..new_task("holder") };
    let next = NewTask { limit_key, delay: Delay::For { ms: 100 }, ..new_task("next") };
    for is_moved in [false, true] {
        let mut tables = ReferenceTables::default();
        for command in [bulk(vec![holder.clone(), next.clone()]), claim(1).into()] {
            tables.execute(START, &command).expect("a fixture is accepted");
        }
        let mut world = World::new(START, Hints::default());
        decide_with(&mut world, &tables, &Sweep::default().into());
        if is_moved {
            let swept = tables.execute(START.plus_ms(200), &Sweep::default().into());
            assert!(matches!(swept, Ok(Outcome::Swept { swept: 1, .. })), "{swept:?}");
        }
        let complete = Complete { fence: fence("holder", 1), result: None };
        decide_with(&mut world, &tables, &complete.into());
        assert_eq!(world.is_late(), is_moved);
    }
}

/// A batch looks up a task that does not exist. Another batch creates it behind a concurrency
/// limit. A completion in the first batch then frees the limit and scans that task.
#[test]
fn a_batch_that_loads_a_record_after_its_absence_is_late() {
    let keyed =
        |id: &str| NewTask { limit_key: Some(LimitKey::Concurrency("k".into())), ..new_task(id) };
    for is_created in [false, true] {
        let mut tables = ReferenceTables::default();
        for command in [bulk(vec![keyed("holder")]), claim(1).into()] {
            tables.execute(START, &command).expect("a fixture is accepted");
        }
        let mut world = World::new(START, Hints::default());
        decide_with(
            &mut world,
            &tables,
            &Cancel { task: key("next"), reason: String::new() }.into(),
        );
        if is_created {
            tables.execute(START, &bulk(vec![keyed("next")])).expect("a fixture is accepted");
        }
        let complete = Complete { fence: fence("holder", 1), result: None };
        decide_with(&mut world, &tables, &complete.into());
        assert_eq!(world.is_late(), is_created);
    }
}

/// A batch looks up a concurrency limit, with a task that exists already. Another batch creates the
/// limit with a task that this one then cancels: the limit must not count it for ever.
#[test]
fn a_concurrency_limit_loaded_too_early_is_a_conflict() {
    let keyed =
        |id: &str| NewTask { limit_key: Some(LimitKey::Concurrency("k".into())), ..new_task(id) };
    let mut tables = ReferenceTables::default();
    tables.execute(START, &create("here")).expect("it is the first");
    let mut world = World::new(START, Hints::default());
    let again = Create::one(NewTask { payload: None, ..keyed("here") });
    decide_with(&mut world, &tables, &again.into());
    tables.execute(START, &bulk(vec![keyed("t")])).expect("a fixture is accepted");
    decide_with(&mut world, &tables, &Cancel { task: key("t"), reason: String::new() }.into());
    let changes = world.finish().0;
    assert_eq!(tables.commit(&changes), Err(VersionConflict), "{changes:?}");
}

/// Where transactions run concurrently, a batch can see rows committed after it began.
#[test]
fn a_task_starts_above_every_version_seen() {
    let tables = ReferenceTables::default();
    let now = Timestamp::from_millis(1_000);
    let as_of = now.plus_ms(5_000);
    let mut world = World::new(now, Hints::default());
    let create = Create::one(NewTask::new("t", "k")).into();
    while decide(&mut world, &create) == Decided::Parked {
        let wanted = world.take_load_request().unwrap();
        let loaded = Loaded { as_of, ..tables.load(&wanted) };
        world.absorb(&wanted, loaded);
    }
    let changes = world.finish().0;
    assert!(changes.commit_time > as_of, "the clock of the store continues from there");
    assert!(changes.inserts.iter().all(|row| row.version.0 > as_of.micros()));
    let task = changes.inserts.iter().find(|row| row.key.table == Table::Task).unwrap();
    let task = read_row::<Task>(task.schema, &task.body).unwrap();
    assert!(task.epoch > as_of.micros() as u64);
    assert_eq!((task.created_at, changes.at), (as_of.next(), as_of.next()));
    assert!(changes.events.iter().all(|event| event.at == changes.at));
}

/// Once a command is decided, the time of a batch is fixed: later writes are not overwritten.
#[test]
fn a_batch_that_sees_a_later_write_is_late() {
    let (before, now) = (Timestamp::from_millis(1), Timestamp::from_millis(1_000));
    for (written_at, late) in [(now.plus_ms(1), true), (now, true), (before, false)] {
        let mut tables = ReferenceTables::default();
        let create = |id: &str| Command::from(Create::one(NewTask::new(id, "k")));
        tables.execute(written_at, &create("there")).expect("it is the first");
        let mut world = World::new(now, Hints::default());
        let other = Create { tenant: Tenant::new("other"), tasks: vec![NewTask::new("t", "k")] };
        for command in [other.into(), create("new")] {
            while decide(&mut world, &command) == Decided::Parked {
                let wanted = world.take_load_request().unwrap();
                let loaded = tables.load(&wanted);
                world.absorb(&wanted, loaded);
            }
        }
        assert_eq!(world.is_late(), late, "{written_at}");
    }
}

/// Two batches that log events of one task at the same time conflict.
#[test]
fn a_task_with_a_logged_event_is_written() {
    let mut tables = ReferenceTables::default();
    let send = || Command::from(SendMessages::one(NewMessage::new("t", "go", "ops")));
    tables.execute(START, &Create::one(NewTask::new("t", "k")).into()).expect("it is the first");
    tables.execute(START, &send()).expect("it is open");
    let (_, one) = tables.attempt(START, &send());
    assert!(one.updates.iter().any(|update| update.row.key == task_row("t")), "{one:?}");
}
