//! Writes a change set.

use rusqlite::types::{Null, ToSql};
use rusqlite::{Connection, Statement};
use windlass_core::{ChangeSet, Event, PayloadKey, Row, RowKey, Timestamp, Update, Version};

use crate::error::Trouble;
use crate::load::{bind, number};
use crate::sql;

type Done = Result<(), Trouble>;

/// This handle, as its commits leave its mark.
#[derive(Debug)]
pub(crate) struct Mark<'m> {
    pub(crate) id: &'m str,
    pub(crate) batch: u64,
    pub(crate) at: Timestamp,
}

/// Writes everything into the open transaction.
pub(crate) fn save(conn: &Connection, changes: &ChangeSet, mark: &Mark<'_>) -> Done {
    check(conn, &changes.reads)?;
    insert(conn, &changes.inserts)?;
    update(conn, &changes.updates)?;
    delete(conn, &changes.deletes)?;
    payloads(conn, changes)?;
    append(conn, &changes.events)?;
    if let Some(through) = changes.trim_through {
        conn.prepare_cached(sql::TRIM)?.execute([number(through)])?;
    }
    let (at, batch) = (mark.at.micros(), number(mark.batch));
    conn.prepare_cached(sql::KEEP_CLOCK)?.execute([at])?;
    conn.prepare_cached(sql::KEEP_BATCH)?.execute((mark.id, batch, at))?;
    Ok(())
}

/// Checks that what was only read is as it was.
pub(crate) fn check(conn: &Connection, reads: &[(RowKey, Version)]) -> Done {
    for reads in reads.chunk_by(|(a, _), (b, _)| a.table == b.table) {
        let mut stmt = conn.prepare_cached(&sql::of(reads[0].0.table).check)?;
        for (key, version) in reads {
            let next = bind(&mut stmt, 1, &key.values)?;
            stmt.raw_bind_parameter(next, version.0)?;
            if stmt.raw_query().next()?.is_none() {
                return Err(Trouble::Clash);
            }
        }
    }
    Ok(())
}

fn insert(conn: &Connection, rows: &[Row]) -> Done {
    for rows in rows.chunk_by(|a, b| a.key.table == b.key.table) {
        let mut stmt = conn.prepare_cached(&sql::of(rows[0].key.table).insert)?;
        for row in rows {
            let next = bind(&mut stmt, 1, &row.key.values)?;
            bind_content(&mut stmt, next, row)?;
            stmt.raw_execute()?;
        }
    }
    Ok(())
}

fn update(conn: &Connection, updates: &[Update]) -> Done {
    for updates in updates.chunk_by(|a, b| a.row.key.table == b.row.key.table) {
        let mut stmt = conn.prepare_cached(&sql::of(updates[0].row.key.table).update)?;
        for Update { row, expected } in updates {
            let next = bind_content(&mut stmt, 1, row)?;
            let next = bind(&mut stmt, next, &row.key.values)?;
            stmt.raw_bind_parameter(next, expected.0)?;
            one(stmt.raw_execute()?)?;
        }
    }
    Ok(())
}

fn delete(conn: &Connection, deletes: &[(RowKey, Version)]) -> Done {
    for deletes in deletes.chunk_by(|(a, _), (b, _)| a.table == b.table) {
        let mut stmt = conn.prepare_cached(&sql::of(deletes[0].0.table).delete)?;
        for (key, version) in deletes {
            let next = bind(&mut stmt, 1, &key.values)?;
            stmt.raw_bind_parameter(next, version.0)?;
            one(stmt.raw_execute()?)?;
        }
    }
    Ok(())
}

fn one(rows: usize) -> Done {
    if rows == 1 { Ok(()) } else { Err(Trouble::Clash) }
}

/// Binds columns, version, schema and body from parameter `next` on.
fn bind_content(stmt: &mut Statement<'_>, next: usize, row: &Row) -> rusqlite::Result<usize> {
    let next = bind(stmt, next, &row.columns)?;
    stmt.raw_bind_parameter(next, row.version.0)?;
    stmt.raw_bind_parameter(next + 1, row.schema)?;
    stmt.raw_bind_parameter(next + 2, row.body.as_str())?;
    Ok(next + 3)
}

fn payloads(conn: &Connection, changes: &ChangeSet) -> Done {
    if !changes.payloads.is_empty() {
        let mut stmt = conn.prepare_cached(sql::PUT_PAYLOAD)?;
        for (key, payload) in &changes.payloads {
            let next = bind_payload_key(&mut stmt, key)?;
            stmt.raw_bind_parameter(next, payload.content_type.as_str())?;
            stmt.raw_bind_parameter(next + 1, &payload.bytes[..])?;
            stmt.raw_execute()?;
        }
    }
    if !changes.dropped_payloads.is_empty() {
        let mut stmt = conn.prepare_cached(sql::DROP_PAYLOAD)?;
        for key in &changes.dropped_payloads {
            bind_payload_key(&mut stmt, key)?;
            stmt.raw_execute()?;
        }
    }
    Ok(())
}

pub(crate) fn bind_payload_key(
    stmt: &mut Statement<'_>,
    key: &PayloadKey,
) -> rusqlite::Result<usize> {
    stmt.raw_bind_parameter(1, key.tenant.as_str())?;
    stmt.raw_bind_parameter(2, key.task.as_str())?;
    stmt.raw_bind_parameter(3, key.generation)?;
    stmt.raw_bind_parameter(4, key.slot.as_str())?;
    Ok(5)
}

fn append(conn: &Connection, events: &[Event]) -> Done {
    let (many, rest) = events.as_chunks::<{ sql::EVENTS_AT_ONCE }>();
    append_by(conn, &sql::APPEND_MANY, many.iter().map(|events| &events[..]))?;
    append_by(conn, &sql::APPEND_ONE, rest.chunks(1))
}

/// Appends groups of as many events as `text` has rows.
fn append_by<'e>(
    conn: &Connection,
    text: &str,
    groups: impl ExactSizeIterator<Item = &'e [Event]>,
) -> Done {
    if groups.len() == 0 {
        return Ok(());
    }
    let mut stmt = conn.prepare_cached(text)?;
    for events in groups {
        let mut next = 1;
        for event in events {
            next = bind_event(&mut stmt, next, event)?;
        }
        stmt.raw_execute()?;
    }
    Ok(())
}

fn bind_event(stmt: &mut Statement<'_>, next: usize, event: &Event) -> rusqlite::Result<usize> {
    let (task, kind): (&dyn ToSql, &dyn ToSql) = match &event.task {
        Some((task, kind)) => (&task.as_str(), &kind.as_str()),
        None => (&Null, &Null),
    };
    stmt.raw_bind_parameter(next, event.at.micros())?;
    stmt.raw_bind_parameter(next + 1, event.tenant.as_str())?;
    stmt.raw_bind_parameter(next + 2, event.lane.as_str())?;
    stmt.raw_bind_parameter(next + 3, task)?;
    stmt.raw_bind_parameter(next + 4, kind)?;
    stmt.raw_bind_parameter(next + 5, event.change.family().as_str())?;
    stmt.raw_bind_parameter(next + 6, event.change.name())?;
    stmt.raw_bind_parameter(next + 7, event.change.body())?;
    Ok(next + 8)
}
