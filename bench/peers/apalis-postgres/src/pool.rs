//! The connections of apalis, and what Postgres says of each of them.

use apalis_postgres::{PgConnectOptions, PgPool, PostgresStorage};
use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;

use crate::Failure;
use crate::settings::Settings;

/// A pool whose connections are the same from start to end.
pub(crate) struct Pool {
    pub(crate) pool: PgPool,
    size: u32,
}

/// How durable a commit is, by every connection, and which connections these are.
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
            // It asks every connection whether it is alive before each use otherwise.
            .test_before_acquire(false)
            .connect_with(options)
            .await?;
        let pool = Self { pool, size: settings.connections() };
        PostgresStorage::setup(&pool.pool).await?;
        Ok(pool)
    }

    /// Every connection at once: only so is it certain that none is missed.
    async fn all(&self) -> Result<Vec<PoolConnection<Postgres>>, Failure> {
        let mut all = Vec::new();
        for _ in 0..self.size {
            all.push(self.pool.acquire().await?);
        }
        Ok(all)
    }

    /// The same words for every connection, or all that were found.
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

    /// Tells Postgres what the tables look like.
    pub(crate) async fn analyze(&self) -> Result<(), Failure> {
        sqlx::query("ANALYZE apalis.jobs").execute(&self.pool).await?;
        Ok(())
    }

    /// As if the workers had stopped long ago: apalis refuses a name that was seen just before.
    pub(crate) async fn forget_heartbeats(&self) -> Result<(), Failure> {
        let past = "UPDATE apalis.workers SET last_seen = 'epoch'";
        sqlx::query(past).execute(&self.pool).await?;
        Ok(())
    }

    /// How many jobs are marked as done.
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
