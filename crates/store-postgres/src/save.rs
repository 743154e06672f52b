//! Turns a change set into the pipeline that checks, writes and commits it.

use windlass_core::{ChangeSet, Event, Row, RowKey, Table, Timestamp, Update, Value, Version};

use crate::pipeline::{Param, Statement};
use crate::sql::{Sql, number};

/// What a commit adds to the changes of its batch.
#[derive(Debug)]
pub(crate) struct Seal<'c> {
    pub(crate) log_lock: i64,
    /// The number of the last deletion at the start of the batch.
    pub(crate) last_deletion: i64,
    pub(crate) at: Timestamp,
    pub(crate) channel: &'c str,
    /// The notification to other handles.
    pub(crate) notification: &'c str,
    /// The bodies of its events.
    pub(crate) bodies: &'c [String],
    /// The latest log time that its events may follow, in microseconds.
    pub(crate) follows: i64,
}

pub(crate) fn commit<'c>(
    sql: &'c Sql,
    changes: &'c ChangeSet,
    seal: &Seal<'c>,
) -> Vec<Statement<'c>> {
    let mut statements = Vec::new();
    versioned(sql, Sql::check, &changes.reads, &mut statements);
    insert(sql, &changes.inserts, &mut statements);
    update(sql, &changes.updates, &mut statements);
    versioned(sql, Sql::delete, &changes.deletes, &mut statements);
    payloads(sql, changes, &mut statements);
    let mut add = |name, params| statements.push(Statement::new(sql.named(name), params));
    if !changes.is_empty() {
        add("lock_log", vec![Param::Int(seal.log_lock)]);
        let at = || Param::Int(seal.at.micros());
        let (channel, notification) = (Param::Text(seal.channel), Param::Text(seal.notification));
        let keys = Param::Ints(changes.inserts.iter().map(|row| Some(row.key.hash64())).collect());
        let (last_deletion, follows) = (Param::Int(seal.last_deletion), Param::Int(seal.follows));
        add("seal", vec![at(), channel, notification, last_deletion, keys, follows]);
        if !changes.deletes.is_empty() {
            let deleted = changes.deletes.iter().map(|(key, _)| Some(key.hash64())).collect();
            add("record_deletion", vec![at(), Param::Ints(deleted)]);
        }
        if !changes.events.is_empty() {
            add("append", columns_of(&changes.events, seal.bodies));
        }
        if let Some(through) = changes.trim_through {
            add("trim", vec![Param::Int(number(through))]);
            add("record_trim", vec![Param::Int(number(through))]);
        }
    }
    statements.push(Statement::plain("COMMIT"));
    statements
}

/// Keys with their expected versions, and the expected number of rows.
fn versioned<'c>(
    sql: &Sql,
    statement: fn(&Sql, Table) -> String,
    keys: &'c [(RowKey, Version)],
    statements: &mut Vec<Statement<'c>>,
) {
    for keys in keys.chunk_by(|a, b| a.0.table == b.0.table) {
        let rows: Vec<_> = keys.iter().map(|(key, _)| (key, &[][..])).collect();
        let mut params = sql.columns(keys[0].0.table, &rows);
        params.push(Param::Ints(keys.iter().map(|(_, version)| Some(version.0)).collect()));
        params.push(Param::Int(number(keys.len())));
        statements.push(Statement::new(statement(sql, keys[0].0.table), params));
    }
}

fn insert<'c>(sql: &Sql, rows: &'c [Row], statements: &mut Vec<Statement<'c>>) {
    for rows in rows.chunk_by(|a, b| a.key.table == b.key.table) {
        let params = content(sql, &rows.iter().collect::<Vec<_>>());
        statements.push(Statement::new(sql.insert(rows[0].key.table), params));
    }
}

fn update<'c>(sql: &Sql, updates: &'c [Update], statements: &mut Vec<Statement<'c>>) {
    for updates in updates.chunk_by(|a, b| a.row.key.table == b.row.key.table) {
        let rows: Vec<_> = updates.iter().map(|update| &update.row).collect();
        let mut params = content(sql, &rows);
        params.push(Param::Ints(updates.iter().map(|update| Some(update.expected.0)).collect()));
        params.push(Param::Int(number(updates.len())));
        statements.push(Statement::new(sql.update(rows[0].key.table), params));
    }
}

/// The parameters for keys, columns, version, schema and body.
fn content<'c>(sql: &Sql, rows: &[&'c Row]) -> Vec<Param<'c>> {
    let columns: Vec<(&RowKey, &[Value])> =
        rows.iter().map(|row| (&row.key, &row.columns[..])).collect();
    let mut params = sql.columns(rows[0].key.table, &columns);
    params.push(Param::Ints(rows.iter().map(|row| Some(row.version.0)).collect()));
    params.push(Param::Smalls(rows.iter().map(|row| row.schema.cast_signed()).collect()));
    params.push(Param::Texts(rows.iter().map(|row| Some(row.body.as_str())).collect()));
    params
}

fn payloads<'c>(sql: &'c Sql, changes: &'c ChangeSet, statements: &mut Vec<Statement<'c>>) {
    if !changes.payloads.is_empty() {
        let mut params = payload_keys(changes.payloads.iter().map(|(key, _)| key));
        let payloads = || changes.payloads.iter().map(|(_, payload)| payload);
        params.push(Param::Texts(payloads().map(|p| Some(p.content_type.as_str())).collect()));
        params.push(Param::Bytes(payloads().map(|p| &p.bytes[..]).collect()));
        statements.push(Statement::new(sql.named("save_payloads"), params));
    }
    if !changes.dropped_payloads.is_empty() {
        let keys = payload_keys(changes.dropped_payloads.iter());
        statements.push(Statement::new(sql.named("drop_payloads"), keys));
    }
}

pub(crate) fn payload_keys<'c>(
    keys: impl Iterator<Item = &'c windlass_core::PayloadKey> + Clone,
) -> Vec<Param<'c>> {
    vec![
        Param::Texts(keys.clone().map(|key| Some(key.tenant.as_str())).collect()),
        Param::Texts(keys.clone().map(|key| Some(key.task.as_str())).collect()),
        Param::Ints(keys.clone().map(|key| Some(key.execution.into())).collect()),
        Param::Texts(keys.map(|key| Some(key.slot.as_str())).collect()),
    ]
}

fn columns_of<'c>(events: &'c [Event], bodies: &'c [String]) -> Vec<Param<'c>> {
    let task = |event: &'c Event| event.task.as_ref();
    vec![
        Param::Ints(events.iter().map(|event| Some(event.at.micros())).collect()),
        Param::Texts(events.iter().map(|event| Some(event.tenant.as_str())).collect()),
        Param::Texts(events.iter().map(|event| Some(event.lane.as_str())).collect()),
        Param::Texts(events.iter().map(|event| task(event).map(|(id, _)| id.as_str())).collect()),
        Param::Texts(events.iter().map(|event| task(event).map(|(_, k)| k.as_str())).collect()),
        Param::Texts(events.iter().map(|e| Some(e.change.category().as_str())).collect()),
        Param::Texts(events.iter().map(|event| Some(event.change.name())).collect()),
        Param::Texts(bodies.iter().map(|body| Some(body.as_str())).collect()),
    ]
}
