//! Decodes payload and log rows.

use tokio_postgres::{Error, Row};
use windlass_core::{LaneName, LogEvent, Payload, Tenant, Timestamp};

/// A payload, with the index of its key in the statement.
pub(crate) fn payload(row: &Row) -> Result<(usize, Payload), Error> {
    let content_type: &str = row.try_get(1)?;
    let bytes: &[u8] = row.try_get(2)?;
    Ok((unsigned(row, 0)? as usize - 1, Payload::new(content_type, bytes)))
}

pub(crate) fn unsigned(row: &Row, at: usize) -> Result<u64, Error> {
    Ok(row.try_get::<_, i64>(at)?.cast_unsigned())
}

pub(crate) fn logged(row: &Row) -> Result<LogEvent, Error> {
    let text = |at: usize| row.try_get::<_, &str>(at);
    let maybe = |at: usize| row.try_get::<_, Option<&str>>(at);
    Ok(LogEvent {
        seq: unsigned(row, 0)?,
        at: Timestamp::from_micros(row.try_get(1)?),
        tenant: Tenant::from(text(2)?),
        lane: LaneName::from(text(3)?),
        task: maybe(4)?.map(Into::into),
        kind: maybe(5)?.map(Into::into),
        category: text(6)?.to_owned(),
        name: text(7)?.to_owned(),
        body: text(8)?.to_owned(),
    })
}
