//! Prepares a database: schema, format, durability.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSqlOwned, ToSql, Type};
use windlass_store::StoreError;

use crate::error::{DecodeError, translate, unavailable};
use crate::sql::Sql;

/// The format of this program. A higher one can be opened if its `lowest_compatible` allows it.
pub const FORMAT: i64 = MIGRATIONS.len() as i64;

/// Each migration raises the format by one.
pub const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_initial.sql")];

/// How long to wait for another process that creates the tables.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Properties of an opened database.
#[derive(Debug)]
pub(crate) struct DatabaseInfo {
    pub(crate) sql: Sql,
    pub(crate) durability: String,
    pub(crate) log_lock: i64,
}

pub(crate) async fn migrate(client: &Client, schema: &str) -> Result<DatabaseInfo, StoreError> {
    let durability = durability(client).await?;
    if read_format(client, schema).await?.is_none_or(|format| format < FORMAT) {
        make(client, schema, MIGRATIONS).await?;
    }
    let log_lock = lock(client, "log", schema).await?;
    Ok(DatabaseInfo { sql: Sql::new(schema), durability, log_lock })
}

/// The key of an advisory lock of this schema.
async fn lock(client: &Client, what: &str, schema: &str) -> Result<i64, StoreError> {
    let name = format!("windlass {what} {schema}");
    ask(client, "SELECT hashtextextended($1, 0)", &[(&name, Type::TEXT)]).await
}

/// The single value of a query.
async fn ask<T: FromSqlOwned>(
    client: &Client,
    text: &str,
    params: &[(&(dyn ToSql + Sync), Type)],
) -> Result<T, StoreError> {
    let queried = timeout(MIGRATION_TIMEOUT, client.query_typed_one(text, params));
    let row = queried.await.map_err(|_| unavailable(DecodeError::Silent))?;
    row.and_then(|row| row.try_get(0)).map_err(translate)
}

async fn durability(client: &Client) -> Result<String, StoreError> {
    let text = "SELECT format('fsync=%s, synchronous_commit=%s', current_setting('fsync'), \
        replace(current_setting('synchronous_commit'), 'off', 'on'))";
    let found: String = ask(client, text, &[]).await?;
    if !found.starts_with("fsync=on") {
        return Err(StoreError::NotDurable { found, wanted: "fsync=on" });
    }
    Ok(found)
}

/// The format of the tables; none if they do not exist. Rejects the tables of an unreleased
/// version: their format numbers mean other tables, and `meta` has no `lowest_compatible`.
pub async fn read_format(client: &Client, schema: &str) -> Result<Option<i64>, StoreError> {
    let meta = format!(r#""{schema}".meta"#);
    // `to_regclass` could use a cache from before the commit of another process.
    let exists = "SELECT count(*) > 0 FROM pg_tables WHERE schemaname = $1 AND tablename = 'meta'";
    if !ask::<bool>(client, exists, &[(&schema, Type::TEXT)]).await? {
        return Ok(None);
    }
    let found = ask(client, &format!("SELECT format FROM {meta}"), &[]).await?;
    let lowest = format!("SELECT (to_jsonb(m) ->> 'lowest_compatible')::bigint FROM {meta} AS m");
    match ask::<Option<i64>>(client, &lowest, &[]).await? {
        None => Err(StoreError::Unreleased { found }),
        Some(min) if min > FORMAT => Err(StoreError::Incompatible { found, supported: FORMAT }),
        Some(_) => Ok(Some(found)),
    }
}

/// Creates or migrates the tables under an advisory lock; waiting processes hold no snapshot.
async fn make(client: &Client, schema: &str, migrations: &[&str]) -> Result<(), StoreError> {
    let give_up_at = Instant::now() + MIGRATION_TIMEOUT;
    loop {
        client.batch_execute("BEGIN; SET LOCAL lock_timeout = '5s'").await.map_err(translate)?;
        let made = try_make(client, schema, migrations).await;
        let end = if matches!(made, Ok(true)) { "COMMIT" } else { "ROLLBACK" };
        client.batch_execute(end).await.map_err(translate)?;
        if made? {
            return Ok(());
        }
        if Instant::now() > give_up_at {
            return Err(unavailable(DecodeError::Migrating));
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Returns false if another process holds the lock, or changed the tables meanwhile.
async fn try_make(client: &Client, schema: &str, all: &[&str]) -> Result<bool, StoreError> {
    let lock = lock(client, "tables", schema).await?;
    let text = "SELECT pg_try_advisory_xact_lock($1)";
    if !ask::<bool>(client, text, &[(&lock, Type::INT8)]).await? {
        return Ok(false);
    }
    let (found, to) = (read_format(client, schema).await?, all.len());
    let done = usize::try_from(found.unwrap_or(0)).unwrap_or(usize::MAX);
    let mut script =
        format!(r#"CREATE SCHEMA IF NOT EXISTS "{schema}"; SET LOCAL search_path = "{schema}";"#);
    script.extend(all.iter().skip(done).copied());
    script += &match (found, uuid::Uuid::now_v7()) {
        (None, incarnation) => format!("INSERT INTO meta VALUES (1, {to}, 1, '{incarnation}');"),
        (Some(_), _) => format!("UPDATE meta SET format = greatest(format, {to});"),
    };
    match client.batch_execute(&script).await.map_err(translate) {
        Err(StoreError::Conflict) => Ok(false),
        made => made.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use windlass_store_test::postgres::Server;

    use super::*;

    /// A later migration of a test.
    const LATER: &str = "CREATE TABLE later (id bigint);";
    /// Few changes, of which the server tells idle sessions nothing.
    const META: &str = "CREATE TABLE meta (\
        id bigint, format bigint, lowest_compatible bigint, incarnation text);";
    const FORMATS: &str = "SELECT format, lowest_compatible, incarnation FROM windlass.meta";

    async fn client(server: &Server) -> Client {
        crate::connect(&server.url()).await.unwrap().0
    }

    /// A server with tables of the first format, and their description.
    async fn first() -> (Server, String) {
        let server = Server::start();
        make(&client(&server).await, "windlass", &MIGRATIONS[..1]).await.unwrap();
        let meta = server.sql(FORMATS);
        assert!(meta.starts_with("1|1|"), "{meta}");
        (server, meta)
    }

    #[tokio::test]
    async fn tables_created_since_the_start_of_a_transaction_are_seen() {
        let server = Server::start();
        let (late, early) = (client(&server).await, client(&server).await);
        assert_eq!(read_format(&late, "windlass").await.unwrap(), None);
        late.batch_execute("BEGIN").await.unwrap();
        make(&early, "windlass", &[META]).await.unwrap();
        assert_eq!(read_format(&late, "windlass").await.unwrap(), Some(1));
    }

    #[tokio::test]
    async fn a_later_migration_is_applied_once_and_stays_open_to_earlier_programs() {
        let (server, first) = first().await;
        let migrate = || async {
            make(&client(&server).await, "windlass", &[MIGRATIONS[0], LATER]).await.unwrap();
        };
        tokio::join!(migrate(), migrate(), migrate());
        migrate().await;
        assert_eq!(server.sql(FORMATS), first.replacen('1', "2", 1));
        server.sql("INSERT INTO windlass.later VALUES (1)");
        let format = read_format(&client(&server).await, "windlass").await.unwrap();
        assert_eq!(format, Some(2), "this program can open it");
    }

    #[tokio::test]
    async fn a_failed_migration_changes_nothing() {
        let (server, first) = first().await;
        let migrations = [MIGRATIONS[0], LATER, "CREATE TABLE later (id bigint);"];
        let failed = make(&client(&server).await, "windlass", &migrations).await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
        assert_eq!(server.sql(FORMATS), first);
        assert_eq!(server.sql("SELECT to_regclass('windlass.later') IS NULL"), "t");
    }
}
