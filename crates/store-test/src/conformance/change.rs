use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_core::{
    Change, ChangeSet, Event, LaneName, LoadRequest, Payload, Row, RowKey, Slot, Tenant, Update,
    Version,
};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};
use crate::fixture::{START, inserts, lane_key, lane_row, payload_key};
use crate::snapshot::Snapshot;

fn update(row: Row, expected: i64) -> ChangeSet {
    let updates = vec![Update { row, expected: Version(expected) }];
    ChangeSet { updates, ..ChangeSet::default() }
}

fn delete(name: &str, version: i64) -> ChangeSet {
    ChangeSet { deletes: vec![(lane_key(name), Version(version))], ..ChangeSet::default() }
}

fn read(name: &str, version: i64) -> ChangeSet {
    ChangeSet { reads: vec![(lane_key(name), Version(version))], ..ChangeSet::default() }
}

pub(super) async fn an_insert_never_overwrites(context: &Context<'_>) -> Verdict {
    context.commit(inserts([lane_row("a", 1)])).await?;
    context.conflicts("an existing key", inserts([lane_row("a", 2)])).await?;
    context.commit(delete("a", 1)).await?;
    context.commit(inserts([lane_row("a", 3)])).await?;
    let row = context.row(&lane_key("a")).await?;
    same("the version", &row.map(|row| row.version), &Some(Version(3)))
}

pub(super) async fn an_update_checks_its_version(context: &Context<'_>) -> Verdict {
    context.commit(inserts([lane_row("a", 5)])).await?;
    context.conflicts("an earlier version", update(lane_row("a", 5), 4)).await?;
    context.conflicts("a later version", update(lane_row("a", 7), 6)).await?;
    context.conflicts("no such row", update(lane_row("b", 6), 5)).await?;
    let mut row = lane_row("a", 6);
    row.body = r#"{"changed":true}"#.into();
    row.schema = 3;
    context.commit(update(row.clone(), 5)).await?;
    context.conflicts("the previous version", update(lane_row("a", 6), 5)).await?;
    let found = context.row(&lane_key("a")).await?;
    let found = found.map(|row| (row.version, row.schema, row.body));
    same("the row", &found, &Some((row.version, row.schema, row.body)))
}

pub(super) async fn a_delete_checks_its_version(context: &Context<'_>) -> Verdict {
    context.commit(inserts([lane_row("a", 5), lane_row("b", 5)])).await?;
    context.conflicts("an earlier version", delete("a", 4)).await?;
    context.conflicts("no such row", delete("c", 5)).await?;
    context.commit(delete("a", 5)).await?;
    context.conflicts("a deleted row", delete("a", 5)).await?;
    same("the deleted row", &context.row(&lane_key("a")).await?, &None)?;
    ensure(context.row(&lane_key("b")).await?.is_some(), || "row b was deleted too".into())
}

pub(super) async fn a_read_checks_its_version(context: &Context<'_>) -> Verdict {
    context.commit(inserts([lane_row("a", 5)])).await?;
    let writing = |read: ChangeSet| ChangeSet { inserts: vec![lane_row("b", 1)], ..read };
    context.conflicts("an earlier version", writing(read("a", 4))).await?;
    context.conflicts("a later version", writing(read("a", 6))).await?;
    context.conflicts("no such row", writing(read("c", 5))).await?;
    context.commit(writing(read("a", 5))).await?;
    let row = context.row(&lane_key("a")).await?;
    same("the row that was read", &row.map(|row| row.version), &Some(Version(5)))
}

pub(super) async fn reads_alone_write_nothing(context: &Context<'_>) -> Verdict {
    context.commit(inserts([lane_row("a", 5)])).await?;
    let before = Snapshot::of(&*context.store).await?;
    let commits = context.store.describe().await?.commits;
    context.commit(read("a", 5)).await?;
    context.commit(ChangeSet::default()).await?;
    context.conflicts("a stale read alone", read("a", 4)).await?;
    context.conflicts("a read of nothing", read("b", 4)).await?;
    same("commits", &context.store.describe().await?.commits, &commits)?;
    same("the snapshot", &Snapshot::of(&*context.store).await?, &before)
}

/// A change set with every kind of change, on the records of [`with_everything`].
fn everything(first_event: u64) -> ChangeSet {
    let row = Row { body: r#"{"changed":true}"#.into(), ..lane_row("updated", 2) };
    ChangeSet {
        inserts: vec![lane_row("inserted", 1)],
        updates: vec![Update { row, expected: Version(1) }],
        deletes: vec![(lane_key("deleted"), Version(1))],
        reads: vec![(lane_key("read"), Version(1))],
        events: vec![event()],
        payloads: vec![(payload_key("t", 1, Slot::RESULT), Payload::json("[2]"))],
        dropped_payloads: vec![payload_key("t", 0, Slot::INPUT)],
        trim_through: Some(first_event),
        ..ChangeSet::default()
    }
}

fn event() -> Event {
    let (tenant, lane) = (Tenant::default(), LaneName::default());
    let (task, labels) = (None, BTreeMap::new());
    Event { at: START, tenant, lane, task, labels, change: Change::Created }
}

/// Returns the sequence number of its one event.
async fn with_everything(context: &Context<'_>) -> Result<u64, Wrong> {
    let rows = ["updated", "deleted", "read"].map(|name| lane_row(name, 1));
    let payloads = vec![(payload_key("t", 0, Slot::INPUT), Payload::json("[1]"))];
    context.commit(ChangeSet { events: vec![event()], payloads, ..inserts(rows) }).await?;
    let events = context.store.events(0, 10).await?;
    same("events", &events.len(), &1)?;
    Ok(events[0].seq)
}

pub(super) async fn a_change_set_is_all_or_nothing(context: &Context<'_>) -> Verdict {
    let first_event = with_everything(context).await?;
    let bad_update = Update { row: lane_row("read", 8), expected: Version(7) };
    type Spoil = Box<dyn Fn(&mut ChangeSet) + Send + Sync>;
    let spoils: Vec<(&str, Spoil)> = vec![
        ("an insert", Box::new(|set| set.inserts.push(lane_row("read", 1)))),
        ("an update", Box::new(move |set| set.updates.push(bad_update.clone()))),
        ("a delete", Box::new(|set| set.deletes.push((lane_key("read"), Version(7))))),
        ("a read", Box::new(|set| set.reads.push((lane_key("missing"), Version(1))))),
    ];
    for (what, spoil) in spoils {
        let mut changes = everything(first_event);
        // A written row must not be among those only read.
        changes.reads.clear();
        spoil(&mut changes);
        context.conflicts(what, changes).await?;
    }
    context.commit(everything(first_event)).await?;
    let keys = [payload_key("t", 0, Slot::INPUT), payload_key("t", 1, Slot::RESULT)];
    let payloads = context.store.payloads(&keys).await?;
    same("payloads", &payloads, &vec![None, Some(Payload::json("[2]"))])?;
    let events = context.store.events(0, 10).await?;
    same("events", &events.len(), &1)?;
    ensure(events[0].seq > first_event, || "the trimmed event still exists".into())?;
    let there = |row: Option<_>| row.is_some();
    same("inserted", &there(context.row(&lane_key("inserted")).await?), &true)?;
    same("deleted", &there(context.row(&lane_key("deleted")).await?), &false)
}

const MANY: usize = 3_000;

fn many() -> impl Iterator<Item = String> {
    (0..MANY).map(|n| format!("lane-{n:05}"))
}

pub(super) async fn one_conflicting_row_fails_the_change_set(context: &Context<'_>) -> Verdict {
    context.commit(inserts([lane_row("lane-00000", 1)])).await?;
    let first = inserts(many().map(|name| lane_row(&name, 1)));
    let last =
        ChangeSet { inserts: first.inserts.iter().rev().cloned().collect(), ..first.clone() };
    context.conflicts("the first of many", first).await?;
    context.conflicts("the last of many", last).await
}

pub(super) async fn a_wide_change_set_is_stored(context: &Context<'_>) -> Verdict {
    let keys = |version| many().map(move |name| (lane_key(&name), Version(version)));
    context.commit(inserts(many().map(|name| lane_row(&name, 1)))).await?;
    context.commit(ChangeSet { reads: keys(1).collect(), ..ChangeSet::default() }).await?;
    let updates = many().map(|name| Update { row: lane_row(&name, 2), expected: Version(1) });
    context.commit(ChangeSet { updates: updates.collect(), ..ChangeSet::default() }).await?;
    let rows = Snapshot::of(&*context.store).await?.rows;
    same("rows", &rows.len(), &MANY)?;
    ensure(rows.iter().all(|row| row.version == Version(2)), || "a row was not updated".into())?;
    context.commit(ChangeSet { deletes: keys(2).collect(), ..ChangeSet::default() }).await?;
    same("rows", &Snapshot::of(&*context.store).await?.rows, &Vec::new())
}

pub(super) async fn commits_that_write_are_counted(context: &Context<'_>) -> Verdict {
    same("at the start", &context.store.describe().await?.commits, &0)?;
    let sets = [
        ("an insert", inserts([lane_row("a", 1)]), 1),
        ("an update", update(lane_row("a", 2), 1), 2),
        ("nothing", ChangeSet::default(), 2),
        ("an event", ChangeSet { events: vec![event()], ..ChangeSet::default() }, 3),
        ("a delete", delete("a", 2), 4),
    ];
    for (what, changes, expected) in sets {
        context.commit(changes).await?;
        same(what, &context.store.describe().await?.commits, &expected)?;
    }
    Ok(())
}

pub(super) async fn a_dropped_transaction_leaves_no_trace(context: &Context<'_>) -> Verdict {
    context.commit(inserts([lane_row("a", 1)])).await?;
    let before = Snapshot::of(&*context.store).await?;
    let rows: Vec<RowKey> = vec![lane_key("a"), lane_key("b")];
    let wanted = Arc::new(LoadRequest { rows, log_head: 1, ..LoadRequest::default() });
    for _ in 0..3 {
        let mut tx = context.store.begin().await?;
        tx.load(wanted.clone()).await?;
        drop(tx);
        drop(context.store.begin().await?);
    }
    same("the snapshot", &Snapshot::of(&*context.store).await?, &before)?;
    context.commit(inserts([lane_row("b", 1)])).await?;
    Ok(())
}
