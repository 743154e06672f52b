//! Loads the records that a batch requests.

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};
use windlass_core::{
    LoadRequest, Loaded, LogEntry, PageRow, RowKey, StoredRow, Table, Timestamp, Value, Version,
};
use windlass_store::{HintProbe, ScanHints};

use crate::pipeline::{Param, Session, Statement};
use crate::sql::{Sql, number};

pub(crate) async fn load<'w>(
    session: &Session,
    sql: &'w Sql,
    hints: &ScanHints,
    wanted: &'w LoadRequest,
    waits: bool,
) -> Result<Loaded, Error> {
    let probes: Vec<HintProbe> = wanted.scans.iter().map(|scan| hints.probe(scan)).collect();
    let tables: Vec<&[RowKey]> = wanted.rows.chunk_by(|a, b| a.table == b.table).collect();
    let keys = |keys: &&'w [RowKey]| {
        let rows: Vec<_> = keys.iter().map(|key| (key, &[][..])).collect();
        sql.columns(keys[0].table, &rows)
    };
    let mut statements = Vec::new();
    for of_table in &tables {
        if let Some(lock) = sql.lock(of_table[0].table, waits) {
            statements.push(Statement::new(lock, keys(of_table)));
        }
    }
    let locks = statements.len();
    // Scans may lock the returned rows; rows selected after them are at least as recent.
    for (scan, probe) in wanted.scans.iter().zip(&probes) {
        let (text, params) = sql.scan(scan, probe.start.as_deref());
        statements.push(Statement::new(text, params));
    }
    for of_table in &tables {
        statements.push(Statement::new(sql.select(of_table[0].table), keys(of_table)));
    }
    if wanted.log_head > 0 {
        let limit = vec![Param::Int(number(wanted.log_head))];
        statements.push(Statement::new(sql.named("log_head"), limit));
    }
    // Last: no commit visible to these statements is later than this clock value.
    statements.push(Statement::plain(sql.named("clock")));
    let mut results = session.all(&statements).await?.into_iter().skip(locks);
    let mut next = || results.next().unwrap_or_default();
    let mut loaded = Loaded::default();
    for (scan, probe) in wanted.scans.iter().zip(probes) {
        let width = scan.range.index.spec().columns.len();
        let page: Result<Vec<_>, _> = next().iter().map(|row| page_row(row, width)).collect();
        hints.learn(probe, page.as_deref().unwrap_or_default());
        loaded.pages.push(page?);
    }
    for keys in &tables {
        for row in next() {
            loaded.rows.push(stored(keys[0].table, &row)?);
        }
    }
    if wanted.log_head > 0 {
        loaded.log_head = next().iter().map(log_entry).collect::<Result<_, _>>()?;
    }
    let clock = next().first().map_or(Ok(0), |row| row.try_get(0))?;
    loaded.as_of = Timestamp::from_micros(clock);
    Ok(loaded)
}

fn page_row(row: &Row, width: usize) -> Result<PageRow, Error> {
    Ok(PageRow {
        position: values(row, width)?,
        version: Version(row.try_get(width)?),
        schema: schema(row, width + 1)?,
        body: row.try_get(width + 2)?,
    })
}

fn log_entry(row: &Row) -> Result<LogEntry, Error> {
    let seq: i64 = row.try_get(0)?;
    Ok(LogEntry { seq: seq.cast_unsigned(), at: Timestamp::from_micros(row.try_get(1)?) })
}

/// Reads a key, then version, schema and body.
pub(crate) fn stored(table: Table, row: &Row) -> Result<StoredRow, Error> {
    let width = table.spec().key.len();
    let key = RowKey { table, values: values(row, width)? };
    let version = Version(row.try_get(width)?);
    Ok(StoredRow { key, version, schema: schema(row, width + 1)?, body: row.try_get(width + 2)? })
}

fn schema(row: &Row, at: usize) -> Result<u16, Error> {
    Ok(row.try_get::<_, i16>(at)?.cast_unsigned())
}

/// Reads the first `count` columns.
pub(crate) fn values(row: &Row, count: usize) -> Result<Vec<Value>, Error> {
    let value = |i: usize| match *row.columns()[i].type_() {
        Type::INT8 => Ok(row.try_get::<_, Option<i64>>(i)?.into()),
        _ => Ok(row.try_get::<_, Option<&str>>(i)?.into()),
    };
    (0..count).map(value).collect()
}
