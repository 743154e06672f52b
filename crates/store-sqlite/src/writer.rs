//! The thread that owns the connection that writes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{broadcast, oneshot};
use uuid::Uuid;
use windlass_core::{ChangeSet, Loaded, Timestamp, Wanted};
use windlass_store::{Notice, StoreError, Ticket};

use crate::error::{self, Ended, Trouble};
use crate::load::{Scans, load};
use crate::open::{self, Options};
use crate::save::{self, Mark};
use crate::sql;

/// How often an idle writer looks whether another process has written.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often one batch may try whether a full disk has room again.
const PROBE_EVERY: Duration = Duration::from_millis(200);
/// How long the mark of a program that never came back is kept.
const KEEP_MARKS_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// The origin of every notice: somebody else. What this handle does itself is never sent.
const SOMEBODY: u64 = 1;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) enum Job {
    Begin(Reply<Timestamp>),
    Load(Arc<Wanted>, Reply<Loaded>),
    Commit(Arc<ChangeSet>, Reply<()>),
    Rollback,
    Outcome(Ticket, Reply<bool>),
    Close(Reply<()>),
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    /// None after an I/O error, until the file could be opened again.
    pub(crate) conn: Option<Connection>,
    scans: Scans,
    /// Names this handle in the database.
    pub(crate) id: String,
    /// The number of the last batch that was tried.
    pub(crate) batch: u64,
    /// The batch whose commit may or may not have taken effect.
    pub(crate) doubt: Option<u64>,
    /// Batches that were in doubt and turned out not to be there.
    pub(crate) lost: BTreeSet<u64>,
    /// The time of the open transaction.
    open: Option<Timestamp>,
    /// While the disk is full: when the next batch may try.
    probe_at: Option<Instant>,
    data_version: i64,
    notices: broadcast::Sender<(u64, Notice)>,
    commits: Arc<AtomicU64>,
}

impl Writer {
    pub(crate) fn new(
        path: PathBuf,
        options: Options,
        conn: Connection,
        notices: broadcast::Sender<(u64, Notice)>,
        commits: Arc<AtomicU64>,
    ) -> rusqlite::Result<Self> {
        let data_version = data_version(&conn)?;
        let writer = Self {
            path,
            options,
            conn: Some(conn),
            scans: Scans::default(),
            id: Uuid::now_v7().to_string(),
            batch: 0,
            doubt: None,
            lost: BTreeSet::new(),
            open: None,
            probe_at: None,
            data_version,
            notices,
            commits,
        };
        writer.forget_old_marks();
        Ok(writer)
    }

    /// Works until the store is closed or nobody is left who could ask for anything.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            match jobs.recv_timeout(LOOK_EVERY) {
                Ok(Job::Close(reply)) => {
                    self.finish();
                    drop(self);
                    answer(reply, Ok(()));
                    return;
                }
                Ok(job) => self.work(job),
                Err(RecvTimeoutError::Timeout) => self.look_around(),
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
            }
        }
    }

    fn work(&mut self, job: Job) {
        match job {
            Job::Begin(reply) => answer(reply, self.begin()),
            Job::Load(wanted, reply) => answer(reply, self.load(&wanted)),
            Job::Commit(changes, reply) => answer(reply, self.commit(&changes)),
            Job::Rollback => self.roll_back(),
            Job::Outcome(ticket, reply) => answer(reply, self.outcome(&ticket)),
            Job::Close(_) => unreachable!("the loop ends with it"),
        }
    }

    fn begin(&mut self) -> Result<Timestamp, StoreError> {
        if let Some(probe_at) = self.probe_at {
            let now = Instant::now();
            if now < probe_at {
                return Err(StoreError::Full);
            }
            self.probe_at = Some(now + PROBE_EVERY);
        }
        self.ensure_open()?;
        let (format, lowest, clock) = self.try_begin().map_err(|found| self.give_up(found))?;
        if let Err(refused) = open::supported(format, lowest) {
            self.roll_back();
            return Err(refused);
        }
        let now = self.options.clock.now().max(Timestamp::from_micros(clock));
        self.open = Some(now);
        Ok(now)
    }

    fn try_begin(&mut self) -> rusqlite::Result<(i64, i64, i64)> {
        self.hit("sqlite.begin")?;
        let conn = self.conn();
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        let meta = conn.prepare_cached(sql::META)?.query_row((), |row| row.try_into())?;
        self.notice_others()?;
        Ok(meta)
    }

    fn load(&mut self, wanted: &Wanted) -> Result<Loaded, StoreError> {
        self.open.ok_or_else(ended)?;
        let found = self.hit("sqlite.load").and_then(|()| {
            let conn = self.conn.as_ref().expect(OPEN);
            load(conn, &mut self.scans, wanted)
        });
        found.map_err(|failed| self.give_up(failed))
    }

    fn commit(&mut self, changes: &ChangeSet) -> Result<(), StoreError> {
        let at = self.open.ok_or_else(ended)?;
        let saved = if changes.is_empty() {
            save::check(self.conn(), &changes.reads)
        } else {
            self.batch += 1;
            let mark = Mark { id: &self.id, batch: self.batch, at };
            save::save(self.conn(), changes, &mark)
        };
        match saved {
            Ok(()) => {}
            Err(Trouble::Clash) => {
                self.roll_back();
                return Err(StoreError::Conflict);
            }
            Err(Trouble::Sqlite(failed)) => return Err(self.give_up(failed)),
        }
        if changes.is_empty() {
            self.roll_back();
            return Ok(());
        }
        self.open = None;
        match self.try_commit() {
            Ok(()) => {
                self.count_commit();
                Ok(())
            }
            Err(failed) => self.settle_commit(failed),
        }
    }

    fn try_commit(&self) -> rusqlite::Result<()> {
        self.hit("sqlite.commit.before")?;
        self.conn().prepare_cached("COMMIT")?.execute(())?;
        self.hit("sqlite.commit.after")
    }

    pub(crate) fn count_commit(&mut self) {
        self.probe_at = None;
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a transaction that failed before its commit: nothing was changed.
    fn give_up(&mut self, failed: rusqlite::Error) -> StoreError {
        if error::is(&failed, ErrorCode::SystemIoFailure) {
            self.open = None;
            self.conn = None;
        } else {
            self.roll_back();
        }
        self.note_full(&failed);
        error::of_writing(failed, &self.path)
    }

    pub(crate) fn note_full(&mut self, failed: &rusqlite::Error) {
        if error::is(failed, ErrorCode::DiskFull) {
            self.probe_at = Some(Instant::now() + PROBE_EVERY);
        }
    }

    /// A connection that cannot even roll back is closed, which does the same.
    pub(crate) fn roll_back(&mut self) {
        self.open = None;
        let Some(conn) = &self.conn else { return };
        // SQLite may have rolled back by itself.
        if !conn.is_autocommit() && conn.execute_batch("ROLLBACK").is_err() {
            self.conn = None;
        }
    }

    fn look_around(&mut self) {
        // Whatever goes wrong here, the next batch meets it too and reports it.
        if self.conn.is_none() {
            let _ = self.ensure_open();
        } else if self.open.is_none() {
            let _ = self.notice_others();
        }
    }

    fn notice_others(&mut self) -> rusqlite::Result<()> {
        let found = data_version(self.conn())?;
        if found != self.data_version {
            self.data_version = found;
            // Nobody listening is fine.
            let _ = self.notices.send((SOMEBODY, Notice::Anything));
        }
        Ok(())
    }

    /// Leaves the file as small and as clean as it can be left; all of it is best effort.
    fn finish(&mut self) {
        self.roll_back();
        let Some(conn) = &self.conn else { return };
        if self.batch > 0 && self.doubt.is_none() {
            let _ = conn.execute("DELETE FROM writer WHERE id = ?", [&self.id]);
        }
        checkpoint(conn);
    }

    /// Only a convenience: a file that cannot be written to can still be read.
    fn forget_old_marks(&self) {
        let before = self.options.clock.now().minus_ms(KEEP_MARKS_MS).micros();
        let old = "SELECT 1 FROM writer WHERE at < ?";
        let found = self.conn().prepare(old).and_then(|mut old| old.exists([before]));
        if matches!(found, Ok(true)) {
            let _ = self.conn().execute("DELETE FROM writer WHERE at < ?", [before]);
        }
    }

    pub(crate) fn conn(&self) -> &Connection {
        self.conn.as_ref().expect(OPEN)
    }

    pub(crate) fn hit(&self, step: &'static str) -> rusqlite::Result<()> {
        self.options.failpoints.hit(step).map_or(Ok(()), |fault| Err(error::of_fault(fault)))
    }

    /// Takes a connection that was opened again. Others may have written meanwhile.
    pub(crate) fn adopt(&mut self, conn: Connection) -> rusqlite::Result<()> {
        self.data_version = data_version(&conn)?;
        self.conn = Some(conn);
        let _ = self.notices.send((SOMEBODY, Notice::Anything));
        Ok(())
    }
}

const OPEN: &str = "a transaction begins with an open connection and ends when it is lost";

fn answer<T>(reply: Reply<T>, found: Result<T, StoreError>) {
    // Whoever asked may be gone; dropping its transaction rolls it back.
    let _ = reply.send(found);
}

fn ended() -> StoreError {
    StoreError::Unavailable(Box::new(Ended))
}

/// Changes when another connection commits.
fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(sql::DATA_VERSION)?.query_row((), |row| row.get(0))
}

/// Copies the write-ahead log into the file, as far as readers let it.
pub(crate) fn checkpoint(conn: &Connection) {
    let _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
}
