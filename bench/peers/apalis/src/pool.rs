//! The connections of apalis, and their durability settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use apalis_sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteStorage};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Sqlite};

use crate::Failure;
use crate::settings::Settings;

/// A pool with a fixed set of connections.
pub(crate) struct Pool {
    pub(crate) pool: SqlitePool,
    size: u32,
    opened: Arc<AtomicU32>,
}

impl Pool {
    /// Opens every connection, lets apalis set up the database, then forces the requested settings.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        // The settings that the setup of apalis applies to one connection, applied to all.
        let mut options = SqliteConnectOptions::new()
            .filename(&settings.file)
            .create_if_missing(true)
            .pragma("journal_mode", "WAL")
            .pragma("temp_store", "MEMORY")
            .pragma("cache_size", "64000")
            .pragma("journal_size_limit", "67108864")
            .pragma("wal_autocheckpoint", settings.checkpoint_pages.to_string());
        if let Some(wanted) = settings.synchronous.forced() {
            options = options.pragma("synchronous", wanted);
        }
        let opened = Arc::new(AtomicU32::new(0));
        let counter = opened.clone();
        let pool = SqlitePoolOptions::new()
            .max_connections(settings.connections)
            .min_connections(settings.connections)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_connect(move |_, _| {
                counter.fetch_add(1, Ordering::Relaxed);
                Box::pin(async { Ok(()) })
            })
            .connect_with(options)
            .await?;
        let pool = Self { pool, size: settings.connections, opened };
        drop(pool.all().await?);
        SqliteStorage::setup(&pool.pool).await?;
        if let Some(wanted) = settings.synchronous.forced() {
            pool.force(wanted).await?;
        }
        Ok(pool)
    }

    /// Acquires all connections at once, so that none is missed.
    async fn all(&self) -> Result<Vec<PoolConnection<Sqlite>>, Failure> {
        let mut all = Vec::new();
        for _ in 0..self.size {
            all.push(self.pool.acquire().await?);
        }
        Ok(all)
    }

    /// The setup of apalis turns it off on the connection that it happens to use.
    async fn force(&self, synchronous: &str) -> Result<(), Failure> {
        for mut conn in self.all().await? {
            let pragma = AssertSqlSafe(format!("PRAGMA synchronous = {synchronous}"));
            sqlx::query(pragma).execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// Collects table statistics.
    pub(crate) async fn analyze(&self) -> Result<(), Failure> {
        for mut conn in self.all().await? {
            sqlx::query("ANALYZE").execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// The durability settings that all connections share, or all that were found.
    pub(crate) async fn durability(&self) -> Result<String, Failure> {
        let mut found = Vec::new();
        for mut conn in self.all().await? {
            let journal = "PRAGMA journal_mode";
            let journal: String = sqlx::query_scalar(journal).fetch_one(&mut *conn).await?;
            let synchronous = "PRAGMA synchronous";
            let synchronous: i64 = sqlx::query_scalar(synchronous).fetch_one(&mut *conn).await?;
            let synchronous = match synchronous {
                0 => "OFF",
                1 => "NORMAL",
                2 => "FULL",
                _ => "EXTRA",
            };
            found.push(format!("{journal}, synchronous={synchronous}"));
        }
        found.dedup();
        Ok(found.join(" / "))
    }

    /// Backdates the heartbeats: apalis rejects a worker name that was seen recently.
    pub(crate) async fn forget_heartbeats(&self) -> Result<(), Failure> {
        sqlx::query("UPDATE Workers SET last_seen = 0").execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::Relaxed)
    }

    /// The number of completed jobs.
    pub(crate) async fn done(&self) -> Result<u64, Failure> {
        let count = "SELECT count(*) FROM Jobs WHERE status = 'Done' AND done_at IS NOT NULL";
        let count: i64 = sqlx::query_scalar(count).fetch_one(&self.pool).await?;
        Ok(u64::try_from(count)?)
    }

    pub(crate) async fn sqlite_version(&self) -> Result<String, Failure> {
        Ok(sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&self.pool).await?)
    }
}
