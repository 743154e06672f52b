use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Config, Error, Row};
use windlass_core::{LogEvent, Payload, PayloadKey, StoredRow, Timestamp, Value};
use windlass_postgres_link::Link;
use windlass_store::{
    Clock as _, CommitId, Count, MonotonicTime, Notification, Notifications, Query,
    RoundTripCounter, ScanHints, Store, StoreDescription, StoreError, SystemClock, Tx,
};

use crate::error::{DecodeError, rejected, translate, unavailable};
use crate::load::{stored, values};
use crate::migrate::DatabaseInfo;
use crate::options::Options;
use crate::pipeline::{Param, Session, Statement};
use crate::read::{logged, payload, unsigned};
use crate::save::payload_keys;
use crate::sql::{Sql, number};
use crate::tx::PostgresTx;
use crate::{listen, migrate};

/// The origin of this handle. Its own commits are never sent to it.
const OWN: u64 = 0;

/// A store in one schema of a Postgres database, for any number of handles in any processes.
#[derive(Debug)]
pub struct PostgresStore {
    shared: Arc<Shared>,
    /// Never read from: a source of receivers that closes with the listener.
    notifications: broadcast::Receiver<(u64, Notification)>,
    listener: JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pool: Pool,
    pub(crate) database: DatabaseInfo,
    pub(crate) options: Options,
    /// Whether a connection stays the same between transactions.
    pub(crate) prepare: bool,
    pub(crate) patience: String,
    /// Identifies this handle in its notifications.
    pub(crate) origin: String,
    pub(crate) channel: String,
    pub(crate) commits: AtomicU64,
    counters: Arc<RoundTripCounter>,
    pub(crate) hints: ScanHints,
    /// The time of the latest commit that this handle made or was notified of.
    heard: AtomicI64,
    /// Number of transactions that are being rolled back.
    pub(crate) ending: watch::Sender<usize>,
    pace: Mutex<MonotonicTime>,
}

impl PostgresStore {
    /// Opens a database by its URL, and creates the tables if necessary. The URL may contain
    /// `schema`, `connections`, `prepare`, `sslmode` and `sslrootcert`: see [`Options`].
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let (config, options) = Options::parse(url)?;
        Self::open_with(config, options).await
    }

    /// Starts a new incarnation of the log of a database that was restored from a backup.
    pub async fn renew_incarnation(url: &str) -> Result<(), StoreError> {
        let store = Self::open(url).await?;
        let (meta, id) = (store.shared.sql().name("meta"), uuid::Uuid::now_v7());
        let renew = format!("UPDATE {meta} SET incarnation = '{id}'");
        store.shared.session().await?.client.batch_execute(&renew).await.map_err(translate)
    }

    pub async fn open_with(config: Config, options: Options) -> Result<Self, StoreError> {
        options.check()?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let link = Link::new(config, &options.trust).map_err(rejected)?;
        let prepare = match options.prepare {
            Some(prepare) => prepare,
            None => options.in_time(link.is_direct()).await?.map_err(unavailable)?,
        };
        let manager = Manager::from_config(link.config.clone(), link.tls.clone(), recycling);
        let pool = Pool::builder(manager).max_size(options.connections);
        let pool = pool.build().map_err(unavailable)?;
        let client = options.in_time(pool.get()).await?.map_err(unavailable)?;
        let mut database = migrate::migrate(&client, &options.schema).await?;
        database.sql.optimistic = options.optimistic;
        drop(client);
        let shared = Arc::new(Shared {
            patience: options.patience.as_millis().to_string(),
            origin: uuid::Uuid::now_v7().to_string(),
            channel: format!("windlass_{}", options.schema),
            commits: AtomicU64::default(),
            counters: Arc::default(),
            hints: ScanHints::default(),
            heard: AtomicI64::default(),
            ending: watch::Sender::new(0),
            pace: Mutex::default(),
            database,
            options,
            prepare,
            pool,
        });
        let (sender, notifications) = broadcast::channel(256);
        let (started, listening) = oneshot::channel();
        let listener = tokio::spawn(listen::listen(link, shared.clone(), sender, started));
        // Without a listener, polling has to suffice.
        let _ = timeout(shared.options.patience, listening).await;
        Ok(Self { shared, notifications, listener })
    }
}

impl Shared {
    pub(crate) async fn session(&self) -> Result<Session, StoreError> {
        let client = self.options.in_time(self.pool.get()).await?.map_err(|error| match error {
            deadpool_postgres::PoolError::Closed => StoreError::Closed,
            other => unavailable(other),
        })?;
        Ok(Session { client, prepare: self.prepare, counters: self.counters.clone() })
    }

    pub(crate) fn sql(&self) -> &Sql {
        &self.database.sql
    }

    /// The settings statement at the start of every transaction.
    pub(crate) fn settings(&self) -> Statement<'_> {
        Statement::new(self.sql().named("settings"), vec![Param::Text(&self.patience)])
    }

    /// Reads outside of any batch, in one round trip.
    async fn read<T>(
        &self,
        statement: Statement<'_>,
        decode: impl Fn(&Row) -> Result<T, Error>,
    ) -> Result<Vec<T>, StoreError> {
        let begin = Statement::plain("BEGIN READ ONLY");
        // An index provides the order of every list.
        let in_order = Statement::plain("SET LOCAL enable_sort = off");
        let statements = [begin, self.settings(), in_order, statement, Statement::plain("COMMIT")];
        let session = self.session().await?;
        let Ok(results) = self.options.in_time(session.all(&statements)).await else {
            drop(deadpool_postgres::Object::take(session.client));
            return Err(unavailable(DecodeError::Silent));
        };
        let rows = results.map_err(translate)?.into_iter().nth(3).unwrap_or_default();
        rows.iter().map(decode).collect::<Result<_, _>>().map_err(translate)
    }

    /// The time of a batch, from the database's clock and the last commit.
    pub(crate) fn time(&self, database: Timestamp, last_commit: Timestamp) -> Timestamp {
        let mut pace = self.pace.lock().expect("no code panics while holding the pace");
        match &self.options.clock {
            Some(clock) => pace.now(&**clock, last_commit),
            None => pace.time(database, SystemClock.steady(), last_commit),
        }
    }

    /// Notes a commit as notified; returns whether it is later than all before.
    pub(crate) fn heard(&self, at: Timestamp) -> bool {
        self.heard.fetch_max(at.micros(), Ordering::Relaxed) < at.micros()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        Ok(Box::new(PostgresTx::begin(self.shared.clone()).await?))
    }

    async fn outcome(&self, id: &CommitId) -> Result<bool, StoreError> {
        let xid = id.number.to_string();
        let params = [Param::Text(&xid), Param::Int(id.incarnation), Param::Int(id.at.micros())];
        let text = self.shared.sql().named("outcome");
        let status = |row: &Row| row.try_get::<_, Option<String>>(0);
        let rows = self.shared.read(Statement::new(text, params.into()), status).await?;
        match rows.first().and_then(Option::as_deref) {
            Some("committed") => Ok(true),
            Some("aborted") => Ok(false),
            Some(_) => Err(unavailable(DecodeError::UnderWay)),
            None => Err(unavailable(DecodeError::NoTrace)),
        }
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        let (text, params) = self.shared.sql().list(query);
        self.shared.read(Statement::new(text, params), |row| stored(query.table, row)).await
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        let ((text, params), width) = (self.shared.sql().count(count), count.by.len());
        let counted = |row: &Row| Ok((values(row, width)?, unsigned(row, width)?));
        self.shared.read(Statement::new(text, params), counted).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        let (text, params) = (self.shared.sql().named("payloads"), payload_keys(keys.iter()));
        let mut found = vec![None; keys.len()];
        for (at, payload) in self.shared.read(Statement::new(text, params), payload).await? {
            found[at] = Some(payload);
        }
        Ok(found)
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        let params = vec![Param::Int(number(after)), Param::Int(number(limit))];
        self.shared.read(Statement::new(self.shared.sql().named("events"), params), logged).await
    }

    fn notifications(&self) -> Notifications {
        Notifications::new(self.notifications.resubscribe(), OWN)
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        let statement = Statement::plain(self.shared.sql().named("log_incarnation"));
        let decode = |row: &Row| Ok((unsigned(row, 0)?, row.try_get(1)?));
        let mut rows = self.shared.read(statement, decode).await?;
        let (last_seq, incarnation) = rows.pop().ok_or_else(|| unavailable(DecodeError::Ended))?;
        Ok(StoreDescription {
            backend: "postgres",
            format: migrate::FORMAT,
            durability: self.shared.database.durability.clone(),
            incarnation,
            last_seq,
            commits: self.shared.commits.load(Ordering::Relaxed),
            round_trips: Some(self.shared.counters.read()),
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.listener.abort();
        self.shared.pool.close();
        Ok(())
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.listener.abort();
    }
}
