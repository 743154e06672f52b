//! Lists, payloads and the log, outside of transactions.

use tokio_postgres::{Error, Row};
use windlass_core::{LaneName, Logged, Payload, PayloadKey, StoredRow, Tenant, Timestamp, Value};
use windlass_store::{Count, Query};

use crate::flight::{Param, Request, Session};
use crate::load::{stored, values};
use crate::save::{last_seq as last_seq_text, payload_keys};
use crate::sql::{Sql, number};

pub(crate) async fn list(
    session: &Session,
    sql: &Sql,
    query: &Query,
) -> Result<Vec<StoredRow>, Error> {
    let (text, params) = sql.list(query);
    let rows = session.one(Request::new(text, params)).await?;
    rows.iter().map(|row| stored(query.table, row)).collect()
}

pub(crate) async fn count(
    session: &Session,
    sql: &Sql,
    count: &Count,
) -> Result<Vec<(Vec<Value>, u64)>, Error> {
    let (text, params) = sql.count(count);
    let width = count.by.len();
    let read = |row: &Row| Ok((values(row, width)?, unsigned(row, width)?));
    session.one(Request::new(text, params)).await?.iter().map(read).collect()
}

pub(crate) async fn payloads(
    session: &Session,
    sql: &Sql,
    keys: &[PayloadKey],
) -> Result<Vec<Option<Payload>>, Error> {
    let text = format!(
        "SELECT k.ord, t.content_type, t.bytes FROM unnest($1::text[], $2::text[], $3::bigint[], \
         $4::text[]) WITH ORDINALITY AS k(tenant, task, generation, slot, ord) JOIN {} AS t \
         ON t.tenant = k.tenant AND t.task = k.task AND t.generation = k.generation \
         AND t.slot = k.slot",
        sql.name("payload")
    );
    let mut found = vec![None; keys.len()];
    for row in session.one(Request::new(text, payload_keys(keys.iter()))).await? {
        let at = unsigned(&row, 0)? as usize - 1;
        let content_type: String = row.try_get(1)?;
        found[at] = Some(Payload::new(content_type, row.try_get::<_, &[u8]>(2)?));
    }
    Ok(found)
}

pub(crate) async fn events(
    session: &Session,
    sql: &Sql,
    after: u64,
    limit: usize,
) -> Result<Vec<Logged>, Error> {
    let text = format!(
        "SELECT seq, at, tenant, lane, task, kind, family, name, body FROM {} WHERE seq > $1 \
         ORDER BY seq LIMIT $2",
        sql.name("event")
    );
    let params = vec![Param::Int(number(after)), Param::Int(number(limit))];
    session.one(Request::new(text, params)).await?.iter().map(logged).collect()
}

pub(crate) async fn last_seq(session: &Session, sql: &Sql) -> Result<u64, Error> {
    let rows = session.one(Request::new(last_seq_text(sql), Vec::new())).await?;
    rows.first().map_or(Ok(0), |row| unsigned(row, 0))
}

fn unsigned(row: &Row, at: usize) -> Result<u64, Error> {
    Ok(row.try_get::<_, i64>(at)?.cast_unsigned())
}

fn logged(row: &Row) -> Result<Logged, Error> {
    let text = |at: usize| row.try_get::<_, &str>(at);
    let maybe = |at: usize| row.try_get::<_, Option<&str>>(at);
    Ok(Logged {
        seq: unsigned(row, 0)?,
        at: Timestamp::from_micros(row.try_get(1)?),
        tenant: Tenant::from(text(2)?),
        lane: LaneName::from(text(3)?),
        task: maybe(4)?.map(Into::into),
        kind: maybe(5)?.map(Into::into),
        family: text(6)?.to_owned(),
        name: text(7)?.to_owned(),
        body: text(8)?.to_owned(),
    })
}
