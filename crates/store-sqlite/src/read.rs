//! Lists, payloads and the log, on read-only connections.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Result, Row};
use tokio::sync::Semaphore;
use windlass_core::{
    LaneName, LogEvent, Payload, PayloadKey, RowKey, StoredRow, Tenant, Timestamp, Value,
};
use windlass_store::{Count, Query, StoreError};

use crate::error::{DecodeError, SqliteError};
use crate::load::{bind, number, seq, stored, values};
use crate::open::Identity;
use crate::{open, sql};

const MOST: u32 = 4;

/// A small pool of connections, opened on demand.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    /// Identity of the opened file.
    file: Option<Identity>,
    busy_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, busy_timeout: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(MOST as usize));
        let file = open::identity(&path);
        Self { path, file, busy_timeout, idle: Mutex::default(), permits }
    }

    /// Runs `work` in one snapshot of the database, on a blocking thread.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::Closed)?;
        let readers = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            if open::identity(&readers.path) != readers.file {
                return Err(StoreError::Unavailable(Box::new(DecodeError::Gone)));
            }
            readers.run(work).map_err(|found| SqliteError::from(found).into_error(&readers.path))
        });
        reading.await.unwrap_or_else(|failed| Err(StoreError::Unavailable(Box::new(failed))))
    }

    /// Runs `work`. A connection that failed is not reused.
    fn run<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = self.idle().pop();
        let conn = match idle {
            Some(conn) => conn,
            None => open::reader(&self.path, self.busy_timeout)?,
        };
        let snapshot = conn.unchecked_transaction()?;
        let found = work(&snapshot)?;
        snapshot.finish()?;
        self.idle().push(conn);
        Ok(found)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().expect("no code panics while holding the connections")
    }

    /// Waits for running reads, and rejects later ones.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(MOST).await;
        self.permits.close();
        self.idle().clear();
        drop(all);
    }
}

pub(crate) fn list(conn: &Connection, query: &Query) -> Result<Vec<StoredRow>> {
    let mut stmt = conn.prepare_cached(&sql::list(query))?;
    let mut next = bind(&mut stmt, 1, &query.prefix)?;
    for (_, value) in &query.filter {
        next = bind(&mut stmt, next, std::slice::from_ref(value))?;
    }
    if let Some(after) = &query.after {
        next = bind(&mut stmt, next, &after[sql::decided(query)..])?;
    }
    stmt.raw_bind_parameter(next, number(query.limit))?;
    let width = query.table.spec().key.len();
    let mut rows = stmt.raw_query();
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let key = RowKey { table: query.table, values: values(row, width)? };
        page.push(stored(key, row, width)?);
    }
    Ok(page)
}

pub(crate) fn count(conn: &Connection, count: &Count) -> Result<Vec<(Vec<Value>, u64)>> {
    let mut stmt = conn.prepare_cached(&sql::count(count))?;
    bind(&mut stmt, 1, &count.prefix)?;
    let width = count.by.len();
    let mut rows = stmt.raw_query();
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        counts.push((values(row, width)?, seq(row, width)?));
    }
    Ok(counts)
}

pub(crate) fn payloads(conn: &Connection, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>> {
    let mut stmt = conn.prepare_cached(sql::GET_PAYLOAD)?;
    let find = |key: &PayloadKey| {
        let (tenant, task) = (key.tenant.as_str(), key.task.as_str());
        stmt.query_row((tenant, task, key.execution, key.slot.as_str()), payload).optional()
    };
    keys.iter().map(find).collect()
}

fn payload(row: &Row<'_>) -> Result<Payload> {
    let content_type: String = row.get(0)?;
    Ok(Payload::new(content_type, row.get_ref(1)?.as_blob()?))
}

pub(crate) fn events(conn: &Connection, after: u64, limit: usize) -> Result<Vec<LogEvent>> {
    let mut stmt = conn.prepare_cached(sql::EVENTS)?;
    stmt.query_map([number(after), number(limit)], logged)?.collect()
}

fn logged(row: &Row<'_>) -> Result<LogEvent> {
    let text = |at| row.get::<_, String>(at);
    let maybe = |at| row.get::<_, Option<String>>(at);
    Ok(LogEvent {
        seq: seq(row, 0)?,
        at: Timestamp::from_micros(row.get(1)?),
        tenant: Tenant::from(text(2)?),
        lane: LaneName::from(text(3)?),
        task: maybe(4)?.map(Into::into),
        kind: maybe(5)?.map(Into::into),
        category: text(6)?,
        name: text(7)?,
        body: text(8)?,
    })
}
