//! Loads the records that a batch requests.

use std::sync::Arc;

use rusqlite::types::{FromSqlError, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, Row, Statement};
use windlass_core::{
    LoadRequest, Loaded, LogEntry, PageRow, RowKey, Scan, StoredRow, Timestamp, Value, Version,
};

use crate::sql;

/// A value bound without copying it.
struct Bound<'v>(&'v Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Binds values from parameter `next` on; returns the parameter after them.
pub(crate) fn bind(stmt: &mut Statement<'_>, next: usize, values: &[Value]) -> Result<usize> {
    for (i, value) in values.iter().enumerate() {
        stmt.raw_bind_parameter(next + i, Bound(value))?;
    }
    Ok(next + values.len())
}

/// Values beyond the range of SQLite are larger than any that it stores.
pub(crate) fn number(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

pub(crate) fn load(conn: &Connection, wanted: &LoadRequest) -> Result<Loaded> {
    let mut rows = Vec::with_capacity(wanted.rows.len());
    for keys in wanted.rows.chunk_by(|a, b| a.table == b.table) {
        let mut stmt = conn.prepare_cached(&sql::of(keys[0].table).select)?;
        for key in keys {
            bind(&mut stmt, 1, &key.values)?;
            if let Some(row) = stmt.raw_query().next()? {
                rows.push(stored(key.clone(), row, 0)?);
            }
        }
    }
    let pages = wanted.scans.iter().map(|scan| page(conn, scan)).collect::<Result<_>>()?;
    let log_head = match wanted.log_head {
        0 => Vec::new(),
        entries => log_head(conn, entries)?,
    };
    Ok(Loaded { rows, pages, log_head, ..Loaded::default() })
}

/// Reads version, schema and body from column `at` on.
pub(crate) fn stored(key: RowKey, row: &Row<'_>, at: usize) -> Result<StoredRow> {
    let version = Version(row.get(at)?);
    Ok(StoredRow { key, version, schema: row.get(at + 1)?, body: row.get(at + 2)? })
}

/// Reads the first `count` columns.
pub(crate) fn values(row: &Row<'_>, count: usize) -> Result<Vec<Value>> {
    let value = |i| match row.get_ref(i)? {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        text @ ValueRef::Text(_) => Ok(Value::Text(Arc::from(text.as_str()?))),
        ValueRef::Real(_) | ValueRef::Blob(_) => Err(FromSqlError::InvalidType.into()),
    };
    (0..count).map(value).collect()
}

fn page(conn: &Connection, scan: &Scan) -> Result<Vec<PageRow>> {
    let mut stmt = conn.prepare_cached(&sql::scan(scan))?;
    let prefix = &scan.range.prefix;
    let mut next = bind(&mut stmt, 1, prefix)?;
    if let Some(after) = &scan.after {
        next = bind(&mut stmt, next, &after[prefix.len()..])?;
    }
    if let Some(until) = &scan.range.until {
        next = bind(&mut stmt, next, std::slice::from_ref(until))?;
    }
    stmt.raw_bind_parameter(next, number(scan.limit))?;
    let width = scan.range.index.spec().columns.len();
    let mut rows = stmt.raw_query();
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        page.push(PageRow {
            position: values(row, width)?,
            version: Version(row.get(width)?),
            schema: row.get(width + 1)?,
            body: row.get(width + 2)?,
        });
    }
    Ok(page)
}

fn log_head(conn: &Connection, entries: usize) -> Result<Vec<LogEntry>> {
    let mut stmt = conn.prepare_cached(sql::LOG_HEAD)?;
    let entry =
        |row: &Row<'_>| Ok(LogEntry { seq: seq(row, 0)?, at: Timestamp::from_micros(row.get(1)?) });
    stmt.query_map([number(entries)], entry)?.collect()
}

pub(crate) fn seq(row: &Row<'_>, at: usize) -> Result<u64> {
    let seq: i64 = row.get(at)?;
    u64::try_from(seq).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(at, seq))
}
