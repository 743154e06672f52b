use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};

use async_trait::async_trait;
use tokio::sync::{Mutex, OwnedMutexGuard, broadcast, oneshot};
use uuid::Uuid;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, StoredRow, Timestamp, Value,
};
use windlass_store::{
    CommitId, Count, Notification, Notifications, Query, Store, StoreDescription, StoreError, Tx,
};

use crate::error::SqliteError;
use crate::open::{self, Options};
use crate::read::{self, Readers};
use crate::sql;
use crate::writer::{Job, Reply, Writer};

/// The origin of this handle's own notifications.
const OWN: u64 = 0;

/// A store in one SQLite file. Several handles, in one process or in several on one machine, may
/// open the same file.
#[derive(Debug)]
pub struct SqliteStore {
    jobs: Sender<Job>,
    /// Held by the open transaction.
    lock: Arc<Mutex<()>>,
    readers: Arc<Readers>,
    /// Never read from: a source of receivers that closes with the writer.
    notifications: broadcast::Receiver<(u64, Notification)>,
    durability: String,
    commits: Arc<AtomicU64>,
}

impl SqliteStore {
    /// Opens a file, or creates it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, Options::default())
    }

    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        // The working directory may change, and SQLite must not parse the path as a URI.
        let path = &std::path::absolute(path.as_ref())
            .map_err(|failed| StoreError::Unavailable(Box::new(failed)))?;
        Self::start(path, options).map_err(|error| error.into_error(path))
    }

    /// Reads the format of a file; none if the file or its tables do not exist, for example after
    /// an interrupted creation, which opening completes. Creates neither file nor tables.
    pub fn format(path: impl AsRef<Path>) -> Result<Option<i64>, StoreError> {
        let path = path.as_ref();
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(None);
        }
        open::examine(path).map_err(|error| error.into_error(path))
    }

    /// Starts a new incarnation of the log of a file that was restored from a backup. Call it
    /// before the file is opened: cursors of the lost incarnation then expire.
    pub fn renew_incarnation(path: impl AsRef<Path>) -> Result<(), StoreError> {
        let path = path.as_ref();
        let renew = || -> Result<(), SqliteError> {
            let conn = open::reopen(path, &Options::default())?;
            conn.execute(sql::RENEW, [Uuid::now_v7().to_string()])?;
            Ok(())
        };
        renew().map_err(|error| error.into_error(path))
    }

    fn start(path: &Path, options: Options) -> Result<Self, SqliteError> {
        let conn = open::create(path, &options)?;
        let durability = open::durability(&conn)?;
        let readers = Arc::new(Readers::new(path.to_owned(), options.busy_timeout));
        let commits = Arc::new(AtomicU64::new(0));
        let (sender, notifications) = broadcast::channel(16);
        let (jobs, queue) = mpsc::channel();
        let writer = Writer::new(path.to_owned(), options, conn, sender, commits.clone())?;
        // The thread ends when the store is closed, or all handles are dropped.
        let thread = std::thread::Builder::new().name("windlass-sqlite".into());
        let started = thread.spawn(move || writer.run(&queue));
        started.map_err(|failed| StoreError::Unavailable(Box::new(failed)))?;
        let lock = Arc::default();
        Ok(Self { jobs, lock, readers, notifications, durability, commits })
    }
}

/// Sends a job to the writer and waits for the reply. A writer that has ended was closed.
async fn ask<T>(jobs: &Sender<Job>, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, StoreError> {
    let (reply, response) = oneshot::channel();
    jobs.send(job(reply)).map_err(|_| StoreError::Closed)?;
    response.await.map_err(|_| StoreError::Closed)?
}

#[async_trait]
impl Store for SqliteStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        let lock = self.lock.clone().lock_owned().await;
        // Created before the transaction begins: dropping this future at any point rolls it back.
        let now = Timestamp::default();
        let mut tx = SqliteTx { now, jobs: self.jobs.clone(), open: true, _lock: lock };
        tx.now = ask(&tx.jobs, Job::Begin).await?;
        Ok(Box::new(tx))
    }

    async fn outcome(&self, commit_id: &CommitId) -> Result<bool, StoreError> {
        ask(&self.jobs, |reply| Job::Outcome(commit_id.clone(), reply)).await
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        let query = query.clone();
        self.readers.read(move |conn| read::list(conn, &query)).await
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        let count = count.clone();
        self.readers.read(move |conn| read::count(conn, &count)).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        let keys = keys.to_vec();
        self.readers.read(move |conn| read::payloads(conn, &keys)).await
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        self.readers.read(move |conn| read::events(conn, after, limit)).await
    }

    fn notifications(&self) -> Notifications {
        Notifications::new(self.notifications.resubscribe(), OWN)
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        let (incarnation, last_seq) = self.readers.read(open::log).await?;
        Ok(StoreDescription {
            backend: "sqlite",
            format: open::FORMAT,
            durability: self.durability.clone(),
            incarnation,
            last_seq: u64::try_from(last_seq).unwrap_or(0),
            commits: self.commits.load(Ordering::Relaxed),
            round_trips: None,
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        let _lock = self.lock.lock().await;
        // Readers are closed first, so that the checkpoint can complete.
        self.readers.close().await;
        match ask(&self.jobs, Job::Close).await {
            Err(StoreError::Closed) => Ok(()),
            done => done,
        }
    }
}

struct SqliteTx {
    now: Timestamp,
    jobs: Sender<Job>,
    open: bool,
    _lock: OwnedMutexGuard<()>,
}

#[async_trait]
impl Tx for SqliteTx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError> {
        ask(&self.jobs, |reply| Job::Load(wanted, reply)).await
    }

    async fn commit(mut self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        self.open = false;
        let (reply, response) = oneshot::channel();
        self.jobs.send(Job::Commit(changes, reply)).map_err(|_| StoreError::Closed)?;
        // A writer that ends during the commit drops the reply.
        response.await.unwrap_or(Err(StoreError::OutcomeUnknown(CommitId::new(u64::MAX))))
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        if self.open {
            // Without a writer no transaction is open.
            let _ = self.jobs.send(Job::Rollback);
        }
    }
}
