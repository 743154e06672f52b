//! Lists, payloads and the log, outside of transactions.

use tokio_postgres::{Error, Row};
use windlass_core::{LaneName, Logged, Payload, PayloadKey, StoredRow, Tenant, Timestamp, Value};
use windlass_store::{Count, Query, StoreError};

use crate::error::translate;
use crate::flight::{Param, Request};
use crate::load::{stored, values};
use crate::save::payload_keys;
use crate::sql::number;
use crate::store::Shared;

pub(crate) async fn list(shared: &Shared, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
    let (text, params) = shared.sql().list(query);
    let rows = shared.read(Request::new(text, params)).await?;
    rows.iter().map(|row| stored(query.table, row).map_err(translate)).collect()
}

pub(crate) async fn count(
    shared: &Shared,
    count: &Count,
) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
    let (text, params) = shared.sql().count(count);
    let width = count.by.len();
    let read = |row: &Row| Ok((values(row, width)?, unsigned(row, width)?));
    let rows = shared.read(Request::new(text, params)).await?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(translate)
}

pub(crate) async fn payloads(
    shared: &Shared,
    keys: &[PayloadKey],
) -> Result<Vec<Option<Payload>>, StoreError> {
    let (text, params) = (shared.sql().written("payloads"), payload_keys(keys.iter()));
    let mut found = vec![None; keys.len()];
    for row in shared.read(Request::new(text, params)).await? {
        let (at, payload) = payload(&row).map_err(translate)?;
        found[at] = Some(payload);
    }
    Ok(found)
}

/// A payload, and which of those that were asked for it is.
fn payload(row: &Row) -> Result<(usize, Payload), Error> {
    let content_type: &str = row.try_get(1)?;
    let bytes: &[u8] = row.try_get(2)?;
    Ok((unsigned(row, 0)? as usize - 1, Payload::new(content_type, bytes)))
}

pub(crate) async fn events(
    shared: &Shared,
    after: u64,
    limit: usize,
) -> Result<Vec<Logged>, StoreError> {
    let params = vec![Param::Int(number(after)), Param::Int(number(limit))];
    let rows = shared.read(Request::new(shared.sql().written("events"), params)).await?;
    rows.iter().map(logged).collect::<Result<_, _>>().map_err(translate)
}

pub(crate) async fn last_seq(shared: &Shared) -> Result<u64, StoreError> {
    let rows = shared.read(Request::plain(shared.sql().written("last_seq"))).await?;
    rows.first().map_or(Ok(0), |row| unsigned(row, 0)).map_err(translate)
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
