use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Config, NoTls, Row};
use windlass_core::{Logged, Payload, PayloadKey, StoredRow, Timestamp, Value};
use windlass_store::{
    Clock as _, Count, Description, Notice, Notices, Pace, Query, Store, StoreError, SystemClock,
    Ticket, Tx,
};

use crate::error::{Oddity, translate, unavailable};
use crate::flight::{Counters, Param, Request, Session};
use crate::options::Options;
use crate::sql::Sql;
use crate::tx::PostgresTx;
use crate::{listen, migrate, read};

/// This handle, among the origins of notices. What it does itself is never sent.
const OWN: u64 = 0;
/// A batch is looked up before the next one begins: a few are plenty.
const MOST_DOUBTS: usize = 1_000;

/// Everything in one schema of a Postgres database, for any number of handles in any processes.
#[derive(Debug)]
pub struct PostgresStore {
    shared: Arc<Shared>,
    /// Never read from: a source of receivers that ends with the listener.
    notices: broadcast::Receiver<(u64, Notice)>,
    listener: JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pool: Pool,
    pub(crate) sql: Sql,
    pub(crate) options: Options,
    /// What begins a batch, and what begins a read.
    pub(crate) set_up: String,
    set_up_read: String,
    pub(crate) patience: String,
    /// Names this handle among those who tell of their commits.
    pub(crate) origin: String,
    pub(crate) channel: String,
    pub(crate) log_lock: i64,
    pub(crate) commits: AtomicU64,
    counters: Arc<Counters>,
    /// The lives of the server in which commits were made whose outcome is not known.
    doubts: Mutex<BTreeMap<u64, i64>>,
    /// The time of the latest commit that this handle made or was told of.
    heard: AtomicI64,
    /// How many transactions are being rolled back.
    pub(crate) ending: watch::Sender<usize>,
    pace: Mutex<Pace>,
    durability: String,
    incarnation: String,
}

impl PostgresStore {
    /// Opens a database by its URL, and makes the tables if need be. The URL may say `schema`,
    /// `connections` and `prepare`: see [`Options`].
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let (config, options) = Options::parse(url)?;
        Self::open_with(config, options).await
    }

    /// Starts a new life of the log of a database that was restored from a backup.
    pub async fn renew_incarnation(url: &str) -> Result<(), StoreError> {
        let shared = Self::open(url).await?.shared.clone();
        let (meta, id) = (shared.sql.name("meta"), uuid::Uuid::now_v7());
        let renew = format!("UPDATE {meta} SET incarnation = '{id}'");
        shared.session().await?.client.batch_execute(&renew).await.map_err(translate)
    }

    pub async fn open_with(config: Config, options: Options) -> Result<Self, StoreError> {
        options.check()?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), NoTls, recycling);
        let pool = Pool::builder(manager).max_size(options.connections);
        let pool = pool.build().map_err(unavailable)?;
        let client = pool.get().await.map_err(unavailable)?;
        let found = migrate::migrate(&client, &options.schema).await?;
        drop(client);
        let origin = uuid::Uuid::now_v7().to_string();
        let shared = Arc::new(Shared {
            set_up: set_up(&found.sql),
            set_up_read: format!("SELECT {}", settings()),
            patience: options.patience.as_millis().to_string(),
            origin,
            channel: format!("windlass_{}", options.schema),
            log_lock: found.log_lock,
            commits: AtomicU64::new(0),
            counters: Arc::default(),
            doubts: Mutex::default(),
            heard: AtomicI64::new(0),
            ending: watch::Sender::new(0),
            pace: Mutex::default(),
            durability: found.durability,
            incarnation: found.incarnation,
            sql: found.sql,
            options,
            pool,
        });
        let (sender, notices) = broadcast::channel(256);
        let (begun, listening) = oneshot::channel();
        let listener = tokio::spawn(listen::listen(config, shared.clone(), sender, begun));
        // Where nobody can listen, a look from time to time has to do.
        let _ = timeout(shared.options.patience, listening).await;
        Ok(Self { shared, notices, listener })
    }
}

/// Settings for the transaction alone, so that a pooler can be in between.
fn settings() -> String {
    let patient = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];
    // Statements are planned when tables may be empty, and must stay good when they are full.
    let off = ["enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"];
    let patient = patient.iter().map(|name| format!("set_config('{name}', $1, true)"));
    let off = off.iter().map(|name| format!("set_config('{name}', 'off', true)"));
    let plan = "set_config('plan_cache_mode', 'force_generic_plan', true)";
    let sync = "set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)";
    let all: Vec<String> = patient.chain(off).chain([plan, sync].map(String::from)).collect();
    all.join(", ")
}

/// Since when the server keeps statistics: since its last crash, if not since a reset. The name of
/// a transaction that left no trace is given again after a crash, and so in another life.
const LIFE: &str =
    "coalesce((extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint, 0)";

/// The name of the transaction, the times of the database, the last commit and the last deletion,
/// and the life of the server.
fn set_up(sql: &Sql) -> String {
    format!(
        "SELECT pg_current_xact_id()::text::bigint, \
         (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
         (SELECT last_value FROM {}), (SELECT last_value FROM {}), {LIFE}, {}",
        sql.name("clock"),
        sql.name("deletion"),
        settings()
    )
}

impl Shared {
    pub(crate) async fn session(&self) -> Result<Session, StoreError> {
        let client = self.pool.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Closed => StoreError::Closed,
            deadpool_postgres::PoolError::Backend(error) => unavailable(error),
            other => unavailable(other),
        })?;
        Ok(Session { client, prepare: self.options.prepare, counters: self.counters.clone() })
    }

    /// Asks something outside of any batch, in one flight.
    pub(crate) async fn read(&self, request: Request<'_>) -> Result<Vec<Row>, StoreError> {
        let plain = |text: &str| Request::new(text, Vec::new());
        let set = Request::new(self.set_up_read.as_str(), vec![Param::Text(&self.patience)]);
        let requests = [plain("BEGIN READ ONLY"), set, request, plain("COMMIT")];
        let session = self.session().await?;
        let Ok(answers) = timeout(self.options.silence(), session.all(&requests)).await else {
            drop(deadpool_postgres::Object::take(session.client));
            return Err(unavailable(Oddity::Silent));
        };
        Ok(answers.map_err(translate)?.into_iter().nth(2).unwrap_or_default())
    }

    /// The time of a batch, from that of the database and that of the last commit.
    pub(crate) fn time(&self, database: Timestamp, last_commit: Timestamp) -> Timestamp {
        let mut pace = self.pace.lock().expect("nothing panics while it holds the pace");
        match &self.options.clock {
            Some(clock) => pace.now(&**clock, last_commit),
            None => pace.time(database, SystemClock.steady(), last_commit),
        }
    }

    /// The outcome of a transaction is not known, and the life of the server it was begun in is.
    pub(crate) fn doubt(&self, xid: u64, life: i64) -> StoreError {
        let mut doubts = self.doubts.lock().expect("nothing panics while it holds them");
        doubts.insert(xid, life);
        if doubts.len() > MOST_DOUBTS {
            doubts.pop_first();
        }
        StoreError::OutcomeUnknown(Ticket(xid))
    }

    fn was_begun_in(&self, ticket: &Ticket, life: i64) -> bool {
        let doubts = self.doubts.lock().expect("nothing panics while it holds them");
        doubts.get(&ticket.0) == Some(&life)
    }

    /// Notes a commit that needs no further word; says whether it was later than all before.
    pub(crate) fn heard(&self, at: Timestamp) -> bool {
        self.heard.fetch_max(at.micros(), Ordering::Relaxed) < at.micros()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        Ok(Box::new(PostgresTx::begin(self.shared.clone()).await?))
    }

    async fn outcome(&self, ticket: &Ticket) -> Result<bool, StoreError> {
        let xid = ticket.0.to_string();
        let text = format!("SELECT pg_xact_status($1::text::xid8), {LIFE}");
        let rows = self.shared.read(Request::new(text, vec![Param::Text(&xid)])).await?;
        let read = |row: &Row| Ok((row.try_get::<_, Option<String>>(0)?, row.try_get(1)?));
        let (status, life) = rows.first().map_or(Ok((None, 0)), read).map_err(translate)?;
        match status.as_deref() {
            Some("committed") if !self.shared.was_begun_in(ticket, life) => {
                Err(unavailable(Oddity::Crashed))
            }
            Some("committed") => Ok(true),
            Some("aborted") => Ok(false),
            Some(_) => Err(unavailable(Oddity::UnderWay)),
            None => Err(unavailable(Oddity::LongAgo)),
        }
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        read::list(&self.shared, query).await
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        read::count(&self.shared, count).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        read::payloads(&self.shared, keys).await
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<Logged>, StoreError> {
        read::events(&self.shared, after, limit).await
    }

    fn notices(&self) -> Notices {
        Notices::new(self.notices.resubscribe(), OWN)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        Ok(Description {
            backend: "postgres",
            durability: self.shared.durability.clone(),
            incarnation: self.shared.incarnation.clone(),
            last_seq: read::last_seq(&self.shared).await?,
            commits: self.shared.commits.load(Ordering::Relaxed),
            traffic: Some(self.shared.counters.read()),
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
