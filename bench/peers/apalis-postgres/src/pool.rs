//! The connections of apalis, and their durability settings.

use apalis_postgres::{PgConnectOptions, PgPool, PostgresStorage};
use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;

use crate::Failure;
use crate::settings::Settings;

/// A pool with a fixed set of connections.
pub(crate) struct Pool {
    pub(crate) pool: PgPool,
    size: u32,
}

/// The durability settings of all connections, and their backends.
#[derive(Debug, PartialEq)]
pub(crate) struct Durability {
    pub(crate) words: String,
    backends: Vec<i32>,
}

impl Pool {
    /// Opens every connection and lets apalis set up the database.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        let options: PgConnectOptions = settings.url.parse()?;
        let pool = PgPoolOptions::new()
            .max_connections(settings.connections())
            .min_connections(settings.connections())
            .idle_timeout(None)
            .max_lifetime(None)
            // Otherwise every acquire pings its connection.
            .test_before_acquire(false)
            .connect_with(options)
            .await?;
        let pool = Self { pool, size: settings.connections() };
        PostgresStorage::setup(&pool.pool).await?;
        Ok(pool)
    }

    /// Acquires all connections at once, so that none is missed.
    async fn all(&self) -> Result<Vec<PoolConnection<Postgres>>, Failure> {
        let mut all = Vec::new();
        for _ in 0..self.size {
            all.push(self.pool.acquire().await?);
        }
        Ok(all)
    }

    /// The settings that all connections share, or all that were found.
    pub(crate) async fn durability(&self) -> Result<Durability, Failure> {
        let (mut found, mut backends) = (Vec::new(), Vec::new());
        for mut conn in self.all().await? {
            let question = "SELECT 'fsync=' || current_setting('fsync') \
                || ', synchronous_commit=' || current_setting('synchronous_commit'), \
                pg_backend_pid()";
            let (words, backend): (String, i32) =
                sqlx::query_as(question).fetch_one(&mut *conn).await?;
            found.push(words);
            backends.push(backend);
        }
        found.sort();
        found.dedup();
        backends.sort_unstable();
        Ok(Durability { words: found.join(" / "), backends })
    }

    /// Collects table statistics.
    pub(crate) async fn analyze(&self) -> Result<(), Failure> {
        sqlx::query("ANALYZE apalis.jobs").execute(&self.pool).await?;
        Ok(())
    }

    /// Backdates the heartbeats: apalis rejects a worker name that was seen recently.
    pub(crate) async fn forget_heartbeats(&self) -> Result<(), Failure> {
        let past = "UPDATE apalis.workers SET last_seen = 'epoch'";
        sqlx::query(past).execute(&self.pool).await?;
        Ok(())
    }

    /// The number of completed jobs.
    pub(crate) async fn done(&self) -> Result<u64, Failure> {
        let count =
            "SELECT count(*) FROM apalis.jobs WHERE status = 'Done' AND done_at IS NOT NULL";
        let count: i64 = sqlx::query_scalar(count).fetch_one(&self.pool).await?;
        Ok(u64::try_from(count)?)
    }

    pub(crate) async fn postgres_version(&self) -> Result<String, Failure> {
        Ok(sqlx::query_scalar("SHOW server_version").fetch_one(&self.pool).await?)
    }
}
