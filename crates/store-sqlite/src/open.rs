//! Opens connections: checks format and durability, and creates the tables.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use uuid::Uuid;
use windlass_core::{Range, Scan, Table};
use windlass_store::{Clock, Failpoints, StoreError, SystemClock};

use crate::error::{DecodeError, SqliteError, corrupt};
use crate::sql;

/// The format that this program reads and writes. A database with a higher format can be opened if
/// its `lowest_compatible` allows this one.
pub const FORMAT: i64 = MIGRATIONS.len() as i64;

/// Each migration raises the format by one.
pub const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_initial.sql")];

const DURABLE: &str = "wal, synchronous=FULL";

/// Larger than the default 4 KiB: bodies stay in one page, and the B-trees stay flat.
const PAGE_BYTES: u32 = 8_192;
const WRITER_CACHE_KIB: i64 = 32 * 1_024;
const READER_CACHE_KIB: i64 = 4 * 1_024;
/// WAL size at which SQLite starts a checkpoint.
const CHECKPOINT_PAGES: u32 = 4_000;
const LOG_BYTES: u32 = 64 * 1_024 * 1_024;

/// Settings for opening a file.
#[derive(Clone, Debug)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    pub failpoints: Failpoints,
    /// Maximum number of pages of the file; beyond that it counts as full.
    pub max_pages: Option<u32>,
    /// How long to wait for the write lock of another process.
    pub busy_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            failpoints: Failpoints::default(),
            max_pages: None,
            busy_timeout: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// Reaches a failpoint; fails if a test injects a fault.
    pub(crate) fn hit(&self, step: &'static str) -> Result<(), SqliteError> {
        self.failpoints.hit(step).map_or(Ok(()), |fault| Err(fault.into()))
    }
}

/// Opens the write connection, and creates the file if necessary.
pub(crate) fn create(path: &Path, options: &Options) -> Result<Connection, SqliteError> {
    let give_up_at = Instant::now() + options.busy_timeout;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    loop {
        match writer(path, options, flags) {
            // SQLite's busy timeout does not cover every step of concurrent file creation.
            Err(error) if error.is(ErrorCode::DatabaseBusy) && Instant::now() < give_up_at => {
                std::thread::sleep(Duration::from_millis(5));
            }
            found => return found,
        }
    }
}

/// The format of a file; none if it has no tables. Does not create the file.
pub(crate) fn examine(path: &Path) -> Result<Option<i64>, SqliteError> {
    // Writable, because SQLite must recover after a crash before it can read.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    format(&connect(path, flags, Options::default().busy_timeout)?, path)
}

/// Opens the write connection of an existing file.
pub(crate) fn reopen(path: &Path, options: &Options) -> Result<Connection, SqliteError> {
    writer(path, options, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

pub(crate) fn reader(path: &Path, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, busy_timeout)?;
    conn.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(conn)
}

fn connect(path: &Path, flags: OpenFlags, busy: Duration) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(busy)?;
    // Otherwise a missing column in double quotes would be read as a string.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    // Otherwise statements are replanned for each bound value.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Otherwise closing would checkpoint the WAL of a database that is not from Windlass.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_prepared_statement_cache_capacity(256);
    Ok(conn)
}

fn writer(path: &Path, options: &Options, flags: OpenFlags) -> Result<Connection, SqliteError> {
    let mut conn = connect(path, flags, options.busy_timeout)?;
    // Before any write: a foreign file must stay unchanged.
    let format = format(&conn, path)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    options.hit("sqlite.open")?;
    if format.is_none() && !flags.contains(OpenFlags::SQLITE_OPEN_CREATE) {
        return Err(corrupt(path, DecodeError::Empty).into());
    }
    tune(&conn, options)?;
    let found = durability(&conn)?;
    if found != DURABLE {
        return Err(StoreError::NotDurable { found, wanted: DURABLE }.into());
    }
    if format.is_none_or(|format| format < FORMAT) {
        migrate(&mut conn, path, options, MIGRATIONS)?;
    }
    check_tables(&conn)?;
    Ok(conn)
}

/// The format of the database; none if it has no tables.
fn format(conn: &Connection, path: &Path) -> Result<Option<i64>, SqliteError> {
    let names = "SELECT count(*), count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema";
    let (any, meta): (i64, i64) = conn.query_row(names, [], |row| row.try_into())?;
    if any == 0 {
        return Ok(None);
    }
    if meta == 0 {
        return Err(corrupt(path, DecodeError::Foreign).into());
    }
    // Formats of unreleased versions have other tables under the same numbers.
    if conn.column_exists(None, "meta", "lowest")? {
        let found = conn.query_row("SELECT format FROM meta", [], |row| row.get(0))?;
        return Err(StoreError::Unreleased { found }.into());
    }
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (format, lowest_compatible) = conn.query_row(sql::META, [], read)?;
    supported(format, lowest_compatible)?;
    Ok(Some(format))
}

/// Whether this program supports a database with this format.
pub(crate) fn supported(format: i64, lowest_compatible: i64) -> Result<(), StoreError> {
    if lowest_compatible > FORMAT {
        return Err(StoreError::Incompatible { found: format, supported: FORMAT });
    }
    Ok(())
}

fn tune(conn: &Connection, options: &Options) -> rusqlite::Result<()> {
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    conn.pragma_update(None, "synchronous", "full")?;
    // Where fsync leaves data in the disk cache, as on macOS.
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    conn.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    conn.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    if let Some(pages) = options.max_pages {
        conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(())
}

/// The durability of commits on this connection, as reported by SQLite.
pub(crate) fn durability(conn: &Connection) -> rusqlite::Result<String> {
    let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let level: u8 = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    let synchronous = ["OFF", "NORMAL", "FULL", "EXTRA"][usize::from(level.min(3))];
    Ok(format!("{journal}, synchronous={synchronous}"))
}

/// Applies the migrations that the tables lack. A concurrent second caller finds them migrated.
fn migrate(
    conn: &mut Connection,
    path: &Path,
    options: &Options,
    migrations: &[&str],
) -> Result<(), SqliteError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (applied, to) = (format(&tx, path)?.unwrap_or(0), migrations.len() as i64);
    for migration in migrations.iter().skip(usize::try_from(applied).unwrap_or(usize::MAX)) {
        tx.execute_batch(migration)?;
        options.hit("sqlite.migrate.step")?;
    }
    if applied == 0 {
        let meta = (to, Uuid::now_v7().to_string());
        tx.execute("INSERT INTO meta VALUES (1, ?, 1, ?, 0, 0)", meta)?;
    }
    tx.execute("UPDATE meta SET format = max(format, ?)", [to])?;
    options.hit("sqlite.migrate.before")?;
    tx.commit()?;
    options.hit("sqlite.migrate.after")
}

/// Prepares statements over every table and index, so that missing ones are reported on open and
/// not on the first write.
fn check_tables(conn: &Connection) -> rusqlite::Result<()> {
    for table in Table::ALL {
        conn.prepare(&sql::of(*table).insert)?;
        for index in table.spec().indexes {
            let range = Range { index: index.index, prefix: Vec::new(), until: None };
            conn.prepare(&sql::scan(&Scan { range, after: None, limit: 0 }))?;
        }
    }
    for text in [sql::SET_BATCH, sql::APPEND, sql::PUT_PAYLOAD] {
        conn.prepare(text)?;
    }
    Ok(())
}

/// The incarnation of the log, and its last sequence number.
pub(crate) fn log(conn: &Connection) -> rusqlite::Result<(String, i64)> {
    conn.prepare_cached(sql::LOG)?.query_row([], |row| row.try_into())
}

/// Distinguishes files under the same path.
pub(crate) type Identity = (u64, u64);

#[cfg(unix)]
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
pub(crate) fn identity(_: &Path) -> Option<Identity> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later migration of a test.
    const LATER: &str = "CREATE TABLE later (id INTEGER) STRICT;";

    fn formats(conn: &Connection) -> (i64, i64) {
        let text = "SELECT format, lowest_compatible FROM meta";
        conn.query_row(text, [], |row| row.try_into()).unwrap()
    }

    fn tables(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap()
    }

    /// A connection to tables of the first format.
    fn first() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, Path::new(""), &Options::default(), &MIGRATIONS[..1]).unwrap();
        assert_eq!(formats(&conn), (1, 1));
        conn
    }

    #[test]
    fn a_later_migration_is_applied_once_and_stays_open_to_earlier_programs() {
        let (mut conn, path) = (first(), Path::new(""));
        let before: String =
            conn.query_row("SELECT incarnation FROM meta", [], |row| row.get(0)).unwrap();
        for _ in 0..2 {
            let migrations = [MIGRATIONS[0], LATER];
            migrate(&mut conn, path, &Options::default(), &migrations).unwrap();
            assert_eq!(formats(&conn), (2, 1));
            conn.execute("INSERT INTO later VALUES (1)", []).unwrap();
        }
        let after: String =
            conn.query_row("SELECT incarnation FROM meta", [], |row| row.get(0)).unwrap();
        assert_eq!(before, after);
        assert_eq!(format(&conn, path).unwrap(), Some(2), "this program can open it");
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let mut conn = first();
        let before = tables(&conn);
        for (migrations, step) in [
            (&[MIGRATIONS[0], LATER, "CREATE TABLE later (id INTEGER)"][..], None),
            (&[MIGRATIONS[0], LATER][..], Some("sqlite.migrate.step")),
            (&[MIGRATIONS[0], LATER][..], Some("sqlite.migrate.before")),
        ] {
            let full = move |found| (Some(found) == step).then_some(windlass_store::Fault::Full);
            let failpoints = Failpoints::new(full);
            let options = Options { failpoints, ..Options::default() };
            migrate(&mut conn, Path::new(""), &options, migrations).unwrap_err();
            assert_eq!((formats(&conn), tables(&conn)), ((1, 1), before));
        }
    }
}
