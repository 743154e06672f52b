//! Writes a change set into the open transaction.

use rusqlite::{Connection, Result, Statement};
use windlass_core::{ChangeSet, Event, Row, RowKey, Timestamp, Update, Version};
use windlass_store::StoreError;

use crate::error::SqliteError;
use crate::load::{bind, number};
use crate::sql::{self, TableSql};

type Done = Result<(), SqliteError>;

/// Writes everything except the commit mark. Events are numbered after `last_seq`.
pub(crate) fn save(conn: &Connection, changes: &ChangeSet, last_seq: i64) -> Done {
    insert(conn, &changes.inserts)?;
    update(conn, &changes.updates)?;
    delete(conn, &changes.deletes)?;
    payloads(conn, changes)?;
    append(conn, &changes.events, last_seq)?;
    if let Some(through) = changes.trim_through {
        conn.prepare_cached(sql::TRIM)?.execute([number(through)])?;
    }
    Ok(())
}

/// The commit mark of a batch.
pub(crate) struct Mark<'m> {
    pub(crate) at: Timestamp,
    pub(crate) last_seq: i64,
    /// The handle, and its number for this batch.
    pub(crate) id: &'m str,
    pub(crate) batch: u64,
}

pub(crate) fn mark(conn: &Connection, mark: &Mark<'_>) -> Result<()> {
    let at = mark.at.micros();
    conn.prepare_cached(sql::SET_CLOCK)?.execute((at, mark.last_seq))?;
    conn.prepare_cached(sql::SET_BATCH)?.execute((mark.id, number(mark.batch), at))?;
    Ok(())
}

/// The optimistic check: rows that were only read must be unchanged.
pub(crate) fn check(conn: &Connection, reads: &[(RowKey, Version)]) -> Done {
    let there = |stmt: &mut Statement<'_>, (key, version): &(RowKey, Version)| {
        bind_versioned(stmt, 1, key, *version)?;
        Ok(stmt.raw_query().next()?.is_some())
    };
    each(conn, reads, |(key, _)| key, |sql| &sql.check, there)
}

fn insert(conn: &Connection, rows: &[Row]) -> Done {
    let write = |stmt: &mut Statement<'_>, row: &Row| {
        let next = bind(stmt, 1, &row.key.values)?;
        bind_content(stmt, next, row)?;
        Ok(stmt.raw_execute()? == 1)
    };
    each(conn, rows, |row| &row.key, |sql| &sql.insert, write)
}

fn update(conn: &Connection, updates: &[Update]) -> Done {
    let write = |stmt: &mut Statement<'_>, update: &Update| {
        let next = bind_content(stmt, 1, &update.row)?;
        bind_versioned(stmt, next, &update.row.key, update.expected)?;
        Ok(stmt.raw_execute()? == 1)
    };
    each(conn, updates, |update| &update.row.key, |sql| &sql.update, write)
}

fn delete(conn: &Connection, deletes: &[(RowKey, Version)]) -> Done {
    let write = |stmt: &mut Statement<'_>, (key, version): &(RowKey, Version)| {
        bind_versioned(stmt, 1, key, *version)?;
        Ok(stmt.raw_execute()? == 1)
    };
    each(conn, deletes, |(key, _)| key, |sql| &sql.delete, write)
}

/// Runs a statement for each item, prepared once per table. An item for which `run` returns false
/// is a conflict.
fn each<T>(
    conn: &Connection,
    items: &[T],
    key: impl Fn(&T) -> &RowKey,
    text: impl Fn(&TableSql) -> &str,
    run: impl Fn(&mut Statement<'_>, &T) -> Result<bool>,
) -> Done {
    for items in items.chunk_by(|a, b| key(a).table == key(b).table) {
        let mut stmt = conn.prepare_cached(text(sql::of(key(&items[0]).table)))?;
        for item in items {
            if !run(&mut stmt, item)? {
                return Err(StoreError::Conflict.into());
            }
        }
    }
    Ok(())
}

/// Binds a key and its expected version, from parameter `next` on.
fn bind_versioned(
    stmt: &mut Statement<'_>,
    next: usize,
    key: &RowKey,
    version: Version,
) -> Result<()> {
    let next = bind(stmt, next, &key.values)?;
    stmt.raw_bind_parameter(next, version.0)
}

/// Binds columns, version, schema and body from parameter `next` on.
fn bind_content(stmt: &mut Statement<'_>, next: usize, row: &Row) -> Result<usize> {
    let next = bind(stmt, next, &row.columns)?;
    stmt.raw_bind_parameter(next, row.version.0)?;
    stmt.raw_bind_parameter(next + 1, row.schema)?;
    stmt.raw_bind_parameter(next + 2, row.body.as_str())?;
    Ok(next + 3)
}

fn payloads(conn: &Connection, changes: &ChangeSet) -> Done {
    let mut put = conn.prepare_cached(sql::PUT_PAYLOAD)?;
    for (key, payload) in &changes.payloads {
        let (tenant, task, slot) = (key.tenant.as_str(), key.task.as_str(), key.slot.as_str());
        let (content_type, bytes) = (payload.content_type.as_str(), &payload.bytes[..]);
        put.execute((tenant, task, key.execution, slot, content_type, bytes))?;
    }
    let mut drop = conn.prepare_cached(sql::DROP_PAYLOAD)?;
    for key in &changes.dropped_payloads {
        let (tenant, task) = (key.tenant.as_str(), key.task.as_str());
        drop.execute((tenant, task, key.execution, key.slot.as_str()))?;
    }
    Ok(())
}

fn append(conn: &Connection, events: &[Event], last_seq: i64) -> Done {
    let mut stmt = conn.prepare_cached(sql::APPEND)?;
    for (seq, event) in (last_seq + 1..).zip(events) {
        let Event { at, tenant, lane, task, change, .. } = event;
        let id = task.as_ref().map(|(id, _)| id.as_str());
        let kind = task.as_ref().map(|(_, kind)| kind.as_str());
        let (category, name, body) = (change.category().as_str(), change.name(), event.body());
        let (at, tenant, lane) = (at.micros(), tenant.as_str(), lane.as_str());
        stmt.execute((seq, at, tenant, lane, id, kind, category, name, body))?;
    }
    Ok(())
}
