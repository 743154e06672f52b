//! The thread that owns the write connection.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{broadcast, oneshot};
use uuid::Uuid;
use windlass_core::{ChangeSet, LoadRequest, Loaded, Timestamp};
use windlass_store::{CommitId, MonotonicTime, Notification, StoreError};

use crate::error::{DecodeError, SqliteError};
use crate::load::{load, number};
use crate::open::{self, Identity, Options};
use crate::save::{self, Mark};
use crate::sql;

/// How often an idle writer checks for commits of other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often a batch may probe a full disk for free space.
const PROBE_EVERY: Duration = Duration::from_millis(200);
/// How long the commit mark of a handle that was not closed is retained.
const KEEP_MARKS_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// The origin of every notification: another handle. Own commits are never sent.
const OTHER_HANDLE: u64 = 1;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) enum Job {
    Begin(Reply<Timestamp>),
    Load(Arc<LoadRequest>, Reply<Loaded>),
    Commit(Arc<ChangeSet>, Reply<()>),
    Rollback,
    Outcome(CommitId, Reply<bool>),
    Close(Reply<()>),
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    /// None after an I/O error, until the file is reopened.
    pub(crate) conn: Option<Connection>,
    /// Identifies this handle in the database.
    pub(crate) id: String,
    /// The number of the last attempted batch.
    pub(crate) batch: u64,
    /// The batch whose commit has an unknown outcome.
    pub(crate) unresolved: Option<u64>,
    /// Batches with an unknown outcome that turned out not to be committed.
    pub(crate) lost: BTreeSet<u64>,
    /// The time of the open transaction.
    open: Option<Timestamp>,
    /// The last sequence number of the log at the start of the transaction.
    last_seq: i64,
    /// While the disk is full: when the next batch may try.
    probe_at: Option<Instant>,
    pace: MonotonicTime,
    /// Identity of the opened file.
    pub(crate) file: Option<Identity>,
    /// SQLite's `data_version`, which changes with commits of others; none if they are unknown.
    pub(crate) data_version: Option<i64>,
    notifications: broadcast::Sender<(u64, Notification)>,
    commits: Arc<AtomicU64>,
}

impl Writer {
    pub(crate) fn new(
        path: PathBuf,
        options: Options,
        conn: Connection,
        notifications: broadcast::Sender<(u64, Notification)>,
        commits: Arc<AtomicU64>,
    ) -> rusqlite::Result<Self> {
        let data_version = Some(data_version(&conn)?);
        let file = open::identity(&path);
        let writer = Self {
            path,
            options,
            conn: Some(conn),
            id: Uuid::now_v7().to_string(),
            batch: 0,
            unresolved: None,
            lost: BTreeSet::new(),
            open: None,
            last_seq: 0,
            probe_at: None,
            pace: MonotonicTime::default(),
            file,
            data_version,
            notifications,
            commits,
        };
        writer.forget_old_marks();
        Ok(writer)
    }

    /// Runs until the store is closed or all handles are dropped.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            match jobs.recv_timeout(POLL_INTERVAL) {
                Ok(Job::Close(reply)) => {
                    self.finish();
                    drop(self);
                    // The caller may have left.
                    let _ = reply.send(Ok(()));
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
            Job::Begin(reply) => {
                let begun = self.begin();
                self.respond(reply, begun);
            }
            Job::Load(wanted, reply) => {
                let loaded = self.load(&wanted);
                self.respond(reply, loaded);
            }
            Job::Commit(changes, reply) => {
                let committed = self.commit(&changes);
                self.respond(reply, committed);
            }
            Job::Outcome(commit_id, reply) => {
                let there = self.outcome(&commit_id);
                self.respond(reply, there);
            }
            Job::Rollback => self.roll_back(),
            Job::Close(_) => unreachable!("the loop handles Close"),
        }
    }

    /// The caller may have left; dropping its transaction rolls it back.
    fn respond<T>(&mut self, reply: Reply<T>, found: Result<T, SqliteError>) {
        let _ = reply.send(found.map_err(|error| self.abort_transaction(error)));
    }

    /// Ends a transaction that failed before its commit: nothing was changed.
    fn abort_transaction(&mut self, error: SqliteError) -> StoreError {
        self.roll_back();
        if error.is(ErrorCode::SystemIoFailure) {
            self.conn = None;
        }
        if error.is(ErrorCode::DiskFull) {
            self.probe_at = Some(Instant::now() + PROBE_EVERY);
        }
        error.into_error(&self.path)
    }

    fn begin(&mut self) -> Result<Timestamp, SqliteError> {
        if let Some(probe_at) = self.probe_at {
            let now = Instant::now();
            if now < probe_at {
                return Err(StoreError::Full.into());
            }
            self.probe_at = Some(now + PROBE_EVERY);
        }
        self.ensure_open()?;
        if open::identity(&self.path) != self.file {
            return Err(StoreError::Unavailable(Box::new(DecodeError::Gone)).into());
        }
        self.hit("sqlite.begin")?;
        let conn = self.conn();
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        let meta = conn.prepare_cached(sql::META)?.query_row((), |row| row.try_into());
        let (format, lowest_compatible, clock, last_seq) = meta?;
        open::supported(format, lowest_compatible)?;
        self.notice_others()?;
        let now = self.pace.now(&*self.options.clock, Timestamp::from_micros(clock));
        self.open = Some(now);
        self.last_seq = last_seq;
        Ok(now)
    }

    /// The time of the open transaction.
    fn opened(&self) -> Result<Timestamp, StoreError> {
        self.open.ok_or_else(|| StoreError::Unavailable(Box::new(DecodeError::Ended)))
    }

    fn load(&mut self, wanted: &LoadRequest) -> Result<Loaded, SqliteError> {
        self.opened()?;
        self.hit("sqlite.load")?;
        Ok(load(self.conn(), wanted)?)
    }

    fn commit(&mut self, changes: &ChangeSet) -> Result<(), SqliteError> {
        let at = self.opened()?;
        save::check(self.conn(), &changes.reads)?;
        if changes.is_empty() {
            self.roll_back();
            return Ok(());
        }
        self.batch += 1;
        save::save(self.conn(), changes, self.last_seq)?;
        let mark = Mark {
            at: at.max(changes.commit_time),
            last_seq: self.last_seq + number(changes.events.len()),
            id: &self.id,
            batch: self.batch,
        };
        save::mark(self.conn(), &mark)?;
        self.open = None;
        match self.try_commit() {
            Ok(()) => {
                self.count_commit();
                Ok(())
            }
            Err(error) => self.settle_commit(error),
        }
    }

    fn try_commit(&self) -> Result<(), SqliteError> {
        self.hit("sqlite.commit.before")?;
        self.conn().prepare_cached("COMMIT")?.execute(())?;
        self.hit("sqlite.commit.after")
    }

    pub(crate) fn count_commit(&mut self) {
        self.probe_at = None;
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Rolls back; if that fails, closes the connection, which has the same effect.
    pub(crate) fn roll_back(&mut self) {
        self.open = None;
        let Some(conn) = &self.conn else { return };
        // SQLite may have rolled back already.
        if !conn.is_autocommit() && conn.execute_batch("ROLLBACK").is_err() {
            self.conn = None;
        }
    }

    fn look_around(&mut self) {
        // Errors here are ignored: the next batch meets and reports them.
        if self.conn.is_none() {
            let _ = self.ensure_open();
        } else if self.open.is_none() {
            let _ = self.notice_others();
        }
    }

    pub(crate) fn notice_others(&mut self) -> rusqlite::Result<()> {
        let found = Some(data_version(self.conn())?);
        if found != self.data_version {
            self.data_version = found;
            // There may be no receiver.
            let _ = self.notifications.send((OTHER_HANDLE, Notification::Anything));
        }
        Ok(())
    }

    /// Deletes the commit mark and checkpoints the WAL, best effort.
    fn finish(&mut self) {
        self.roll_back();
        let Some(conn) = &self.conn else { return };
        if self.batch > 0 && self.unresolved.is_none() {
            let _ = conn.execute("DELETE FROM writer WHERE id = ?", [&self.id]);
        }
        checkpoint(conn);
    }

    /// Deletes old commit marks, best effort: the file may be read-only.
    fn forget_old_marks(&self) {
        let before = self.options.clock.now().minus_ms(KEEP_MARKS_MS).micros();
        let old = "SELECT 1 FROM writer WHERE at < ?";
        let found = self.conn().prepare(old).and_then(|mut old| old.exists([before]));
        if matches!(found, Ok(true)) {
            let _ = self.conn().execute("DELETE FROM writer WHERE at < ?", [before]);
        }
    }

    pub(crate) fn conn(&self) -> &Connection {
        self.conn.as_ref().expect("an open transaction has a connection")
    }

    pub(crate) fn hit(&self, step: &'static str) -> Result<(), SqliteError> {
        self.options.hit(step)
    }
}

/// Changes when another connection commits.
fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(sql::DATA_VERSION)?.query_row((), |row| row.get(0))
}

/// Checkpoints the WAL, as far as readers allow.
pub(crate) fn checkpoint(conn: &Connection) {
    let _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
}
