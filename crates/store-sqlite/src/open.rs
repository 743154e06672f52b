//! From a path to a connection that can be trusted: format, durability, tables.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use uuid::Uuid;
use windlass_core::{Range, Scan, Table};
use windlass_store::{Clock, Failpoints, StoreError, SystemClock};

use crate::error::{Oddity, Trouble, corrupt};
use crate::sql;

/// What this program writes and reads. A database of a higher format is fine as long as that
/// format says that this one may open it.
pub const FORMAT: i64 = MIGRATIONS.len() as i64;

/// Each one raises the format by one.
pub const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_tables.sql"),
    include_str!("../migrations/0002_nodes.sql"),
    include_str!("../migrations/0003_waiting.sql"),
    include_str!("../migrations/0004_requests.sql"),
    include_str!("../migrations/0005_workflows.sql"),
];

const DURABLE: &str = "wal, synchronous=FULL";

/// Larger than the usual 4 KiB: a body stays in its page, and the trees stay flat.
const PAGE_BYTES: u32 = 8_192;
const WRITER_CACHE_KIB: i64 = 32 * 1_024;
const READER_CACHE_KIB: i64 = 4 * 1_024;
/// How long the write-ahead log grows before it is copied into the file.
const CHECKPOINT_PAGES: u32 = 4_000;
const LOG_BYTES: u32 = 64 * 1_024 * 1_024;

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    pub failpoints: Failpoints,
    /// The most pages the file may have; it is full beyond that.
    pub max_pages: Option<u32>,
    /// How long to wait for another process that writes.
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
    /// Says that a step is reached; fails where a test wants it to.
    pub(crate) fn hit(&self, step: &'static str) -> Result<(), Trouble> {
        self.failpoints.hit(step).map_or(Ok(()), |fault| Err(fault.into()))
    }
}

/// Opens the connection that writes, and makes the file first if need be.
pub(crate) fn create(path: &Path, options: &Options) -> Result<Connection, Trouble> {
    let give_up_at = Instant::now() + options.busy_timeout;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    loop {
        match writer(path, options, flags) {
            // SQLite does not always wait by itself while another process makes the same file.
            Err(trouble) if trouble.is(ErrorCode::DatabaseBusy) && Instant::now() < give_up_at => {
                std::thread::sleep(Duration::from_millis(5));
            }
            found => return found,
        }
    }
}

/// The format of a file, which is not created; none when there is nothing in it yet.
pub(crate) fn examine(path: &Path) -> Result<Option<i64>, Trouble> {
    // Writable, because SQLite reads what a crash interrupted only after it has recovered it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    format(&connect(path, flags, Options::default().busy_timeout)?, path)
}

/// Opens the connection that writes to a file that must be there.
pub(crate) fn reopen(path: &Path, options: &Options) -> Result<Connection, Trouble> {
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
    // Otherwise a column that is not there would be read as a text.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    // Otherwise a statement is planned anew for every value it is given.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Otherwise the log of a database that is not ours is copied into its file at the end.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_prepared_statement_cache_capacity(256);
    Ok(conn)
}

fn writer(path: &Path, options: &Options, flags: OpenFlags) -> Result<Connection, Trouble> {
    let mut conn = connect(path, flags, options.busy_timeout)?;
    // Before anything is written: a file that is not ours stays as it is.
    let format = format(&conn, path)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    options.hit("sqlite.open")?;
    if format.is_none() && !flags.contains(OpenFlags::SQLITE_OPEN_CREATE) {
        return Err(corrupt(path, Oddity::Empty).into());
    }
    tune(&conn, options)?;
    let found = durability(&conn)?;
    if found != DURABLE {
        return Err(StoreError::NotDurable { found, wanted: DURABLE }.into());
    }
    if format.is_none_or(|format| format < FORMAT) {
        migrate(&mut conn, path, options)?;
    }
    check_tables(&conn)?;
    Ok(conn)
}

/// The format of the database; none when there is nothing in it yet.
fn format(conn: &Connection, path: &Path) -> Result<Option<i64>, Trouble> {
    let names = "SELECT count(*), count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema";
    let (any, meta): (i64, i64) = conn.query_row(names, [], |row| row.try_into())?;
    if any == 0 {
        return Ok(None);
    }
    if meta == 0 {
        return Err(corrupt(path, Oddity::Foreign).into());
    }
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (format, lowest) = conn.query_row(sql::META, [], read)?;
    supported(format, lowest)?;
    Ok(Some(format))
}

/// Whether this program may work with such a database.
pub(crate) fn supported(format: i64, lowest: i64) -> Result<(), StoreError> {
    if lowest > FORMAT {
        return Err(StoreError::Incompatible { found: format, supported: FORMAT });
    }
    Ok(())
}

fn tune(conn: &Connection, options: &Options) -> rusqlite::Result<()> {
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    conn.pragma_update(None, "synchronous", "full")?;
    // Where a plain sync leaves data in the cache of the disk, as on macOS.
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

/// How durable a commit of this connection is, as SQLite says itself.
pub(crate) fn durability(conn: &Connection) -> rusqlite::Result<String> {
    let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let level: u8 = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    let synchronous = ["OFF", "NORMAL", "FULL", "EXTRA"][usize::from(level.min(3))];
    Ok(format!("{journal}, synchronous={synchronous}"))
}

/// Brings the tables up to [`FORMAT`]. Whoever comes second finds the work done.
fn migrate(conn: &mut Connection, path: &Path, options: &Options) -> Result<(), Trouble> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let applied = format(&tx, path)?.unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(usize::try_from(applied).unwrap_or(usize::MAX)) {
        tx.execute_batch(migration)?;
        options.hit("sqlite.migrate.step")?;
    }
    if applied == 0 {
        let made = "INSERT INTO meta VALUES (1, ?, 1, ?, 0, 0)";
        tx.execute(made, (FORMAT, Uuid::now_v7().to_string()))?;
    }
    tx.execute("UPDATE meta SET format = max(format, ?)", [FORMAT])?;
    options.hit("sqlite.migrate.before")?;
    tx.commit()?;
    options.hit("sqlite.migrate.after")
}

/// Prepares statements over every table and every index: what is missing shows at once, not at
/// the first write.
fn check_tables(conn: &Connection) -> rusqlite::Result<()> {
    for table in Table::ALL {
        conn.prepare(&sql::of(*table).insert)?;
        for index in table.spec().indexes {
            let range = Range { index: index.index, prefix: Vec::new(), until: None };
            conn.prepare(&sql::scan(&Scan { range, after: None, limit: 0 }))?;
        }
    }
    for text in [sql::KEEP_BATCH, sql::APPEND, sql::PUT_PAYLOAD] {
        conn.prepare(text)?;
    }
    Ok(())
}

/// The life of the log, and the last number that it has given.
pub(crate) fn log(conn: &Connection) -> rusqlite::Result<(String, i64)> {
    conn.prepare_cached(sql::LOG)?.query_row([], |row| row.try_into())
}

/// What tells a file from another under the same name.
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
