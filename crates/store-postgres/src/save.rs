//! Makes a change set into the one flight that checks, writes and commits it.

use windlass_core::{ChangeSet, Row, RowKey, Timestamp, Update, Value, Version};

use crate::flight::{Param, Request};
use crate::sql::{Sql, number};

/// The log is written by one transaction at a time, from here to its commit.
const LOG_LOCK: &str = "SELECT pg_advisory_xact_lock($1)";

pub(crate) fn commit<'c>(
    sql: &Sql,
    changes: &'c ChangeSet,
    bodies: &'c [String],
    notice: &'c Notification,
) -> Vec<Request<'c>> {
    let mut requests = Vec::new();
    check(sql, &changes.reads, &mut requests);
    insert(sql, &changes.inserts, &mut requests);
    update(sql, &changes.updates, &mut requests);
    delete(sql, &changes.deletes, &mut requests);
    payloads(sql, changes, &mut requests);
    if !changes.is_empty() {
        requests.push(Request::new(LOG_LOCK, vec![Param::Int(notice.lock)]));
        requests.push(raise(sql, "clock", notice.at.micros()));
        if !changes.inserts.is_empty() {
            let params = vec![Param::Int(notice.deletion)];
            requests.push(Request::new(sql.nothing_deleted(), params));
        }
        if !changes.deletes.is_empty() {
            requests.push(raise(sql, "deletion", notice.at.micros()));
        }
        if !changes.events.is_empty() {
            requests.push(append(sql, changes, bodies));
        }
        if let Some(through) = changes.trim_through {
            trim(sql, through, &mut requests);
        }
        let params = vec![Param::Text(&notice.channel), Param::Text(&notice.word)];
        requests.push(Request::new("SELECT pg_notify($1, $2)", params));
    }
    requests.push(Request::new("COMMIT", Vec::new()));
    requests
}

/// What a commit tells the other nodes.
#[derive(Debug)]
pub(crate) struct Notification {
    pub(crate) lock: i64,
    /// The last deletion when the batch began.
    pub(crate) deletion: i64,
    pub(crate) at: Timestamp,
    pub(crate) channel: String,
    pub(crate) word: String,
}

fn check<'c>(sql: &Sql, reads: &'c [(RowKey, Version)], requests: &mut Vec<Request<'c>>) {
    for reads in reads.chunk_by(|a, b| a.0.table == b.0.table) {
        let table = reads[0].0.table;
        requests.push(Request::new(sql.check(table), versioned(sql, reads)));
    }
}

fn delete<'c>(sql: &Sql, deletes: &'c [(RowKey, Version)], requests: &mut Vec<Request<'c>>) {
    for deletes in deletes.chunk_by(|a, b| a.0.table == b.0.table) {
        let table = deletes[0].0.table;
        requests.push(Request::new(sql.delete(table), versioned(sql, deletes)));
    }
}

/// Keys, the versions that must be there, and how many there must be.
fn versioned<'c>(sql: &Sql, keys: &'c [(RowKey, Version)]) -> Vec<Param<'c>> {
    let rows: Vec<_> = keys.iter().map(|(key, _)| (key, &[][..])).collect();
    let mut params = sql.columns(keys[0].0.table, &rows);
    params.push(Param::Ints(keys.iter().map(|(_, version)| Some(version.0)).collect()));
    params.push(Param::Int(number(keys.len())));
    params
}

fn insert<'c>(sql: &Sql, rows: &'c [Row], requests: &mut Vec<Request<'c>>) {
    for rows in rows.chunk_by(|a, b| a.key.table == b.key.table) {
        let params = content(sql, &rows.iter().collect::<Vec<_>>());
        requests.push(Request::new(sql.insert(rows[0].key.table), params));
    }
}

fn update<'c>(sql: &Sql, updates: &'c [Update], requests: &mut Vec<Request<'c>>) {
    for updates in updates.chunk_by(|a, b| a.row.key.table == b.row.key.table) {
        let rows: Vec<_> = updates.iter().map(|update| &update.row).collect();
        let mut params = content(sql, &rows);
        params.push(Param::Ints(updates.iter().map(|update| Some(update.expected.0)).collect()));
        params.push(Param::Int(number(updates.len())));
        requests.push(Request::new(sql.update(rows[0].key.table), params));
    }
}

/// Keys and columns, version, schema and body.
fn content<'c>(sql: &Sql, rows: &[&'c Row]) -> Vec<Param<'c>> {
    let columns: Vec<(&RowKey, &[Value])> =
        rows.iter().map(|row| (&row.key, &row.columns[..])).collect();
    let mut params = sql.columns(rows[0].key.table, &columns);
    params.push(Param::Ints(rows.iter().map(|row| Some(row.version.0)).collect()));
    params.push(Param::Smalls(rows.iter().map(|row| row.schema.cast_signed()).collect()));
    params.push(Param::Texts(rows.iter().map(|row| Some(row.body.as_str())).collect()));
    params
}

fn payloads<'c>(sql: &Sql, changes: &'c ChangeSet, requests: &mut Vec<Request<'c>>) {
    let table = sql.name("payload");
    if !changes.payloads.is_empty() {
        let text = format!(
            "INSERT INTO {table} (tenant, task, generation, slot, content_type, bytes) \
             SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], \
             $6::bytea[]) ON CONFLICT (tenant, task, generation, slot) DO UPDATE \
             SET content_type = excluded.content_type, bytes = excluded.bytes"
        );
        let mut params = payload_keys(changes.payloads.iter().map(|(key, _)| key));
        let payloads = || changes.payloads.iter().map(|(_, payload)| payload);
        params.push(Param::Texts(payloads().map(|p| Some(p.content_type.as_str())).collect()));
        params.push(Param::Bytes(payloads().map(|p| &p.bytes[..]).collect()));
        requests.push(Request::new(text, params));
    }
    if !changes.dropped_payloads.is_empty() {
        let text = format!(
            "DELETE FROM {table} AS t USING unnest($1::text[], $2::text[], $3::bigint[], \
             $4::text[]) AS k(tenant, task, generation, slot) WHERE t.tenant = k.tenant \
             AND t.task = k.task AND t.generation = k.generation AND t.slot = k.slot"
        );
        requests.push(Request::new(text, payload_keys(changes.dropped_payloads.iter())));
    }
}

pub(crate) fn payload_keys<'c>(
    keys: impl Iterator<Item = &'c windlass_core::PayloadKey> + Clone,
) -> Vec<Param<'c>> {
    vec![
        Param::Texts(keys.clone().map(|key| Some(key.tenant.as_str())).collect()),
        Param::Texts(keys.clone().map(|key| Some(key.task.as_str())).collect()),
        Param::Ints(keys.clone().map(|key| Some(key.generation.into())).collect()),
        Param::Texts(keys.map(|key| Some(key.slot.as_str())).collect()),
    ]
}

/// Raises a number that is kept in a sequence. It stays so when the transaction ends badly, which
/// for a number that may only rise does no harm.
fn raise<'c>(sql: &Sql, sequence: &str, to: i64) -> Request<'c> {
    let sequence = sql.name(sequence);
    let text =
        format!("SELECT setval('{sequence}', greatest($1, (SELECT last_value FROM {sequence})))");
    Request::new(text, vec![Param::Int(to)])
}

/// The last number of the log.
pub(crate) fn last_seq(sql: &Sql) -> String {
    let (event, forgotten) = (sql.name("event"), sql.name("forgotten"));
    format!(
        "SELECT coalesce((SELECT max(seq) FROM {event} WHERE seq > f.last_value), f.last_value) \
         AS seq FROM {forgotten} AS f"
    )
}

fn append<'c>(sql: &Sql, changes: &'c ChangeSet, bodies: &'c [String]) -> Request<'c> {
    let text = format!(
        "WITH last AS MATERIALIZED ({}) \
         INSERT INTO {} (seq, at, tenant, lane, task, kind, family, name, body) \
         SELECT last.seq + e.ord, e.at, e.tenant, e.lane, e.task, e.kind, e.family, e.name, e.body \
         FROM last, unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], \
         $6::text[], $7::text[], $8::text[]) WITH ORDINALITY \
         AS e(at, tenant, lane, task, kind, family, name, body, ord)",
        last_seq(sql),
        sql.name("event")
    );
    let events = || changes.events.iter();
    let params = vec![
        Param::Ints(events().map(|event| Some(event.at.micros())).collect()),
        Param::Texts(events().map(|event| Some(event.tenant.as_str())).collect()),
        Param::Texts(events().map(|event| Some(event.lane.as_str())).collect()),
        Param::Texts(events().map(|e| e.task.as_ref().map(|(id, _)| id.as_str())).collect()),
        Param::Texts(events().map(|e| e.task.as_ref().map(|(_, kind)| kind.as_str())).collect()),
        Param::Texts(events().map(|e| Some(e.change.family().as_str())).collect()),
        Param::Texts(events().map(|event| Some(event.change.name())).collect()),
        Param::Texts(bodies.iter().map(|body| Some(body.as_str())).collect()),
    ];
    Request::new(text, params)
}

fn trim<'c>(sql: &Sql, through: u64, requests: &mut Vec<Request<'c>>) {
    let text = format!("DELETE FROM {} WHERE seq <= $1", sql.name("event"));
    requests.push(Request::new(text, vec![Param::Int(number(through))]));
    requests.push(raise(sql, "forgotten", number(through)));
}
