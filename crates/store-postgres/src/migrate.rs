//! From a database to tables that can be trusted: schema, format, durability.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::Type;
use windlass_core::Table;
use windlass_store::StoreError;

use crate::error::{Oddity, translate, unavailable};
use crate::sql::{Kind, Sql};

/// What this program writes and reads. A database of a higher format is fine as long as that
/// format says that this one may open it.
const FORMAT: i64 = MIGRATIONS.len() as i64;

/// Each one raises the format by one.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_tables.sql")];

/// How long to wait for another program that makes the tables.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a database turned out to be.
pub(crate) struct Found {
    pub(crate) sql: Sql,
    pub(crate) incarnation: String,
    pub(crate) durability: String,
    pub(crate) log_lock: i64,
}

pub(crate) async fn migrate(client: &Client, schema: &str) -> Result<Found, StoreError> {
    let durability = durability(client).await?;
    let locks = locks(client, schema).await.map_err(translate)?;
    if format(client, schema).await?.is_none_or(|format| format < FORMAT) {
        make(client, schema, locks.0).await?;
    }
    let text = format!(r#"SELECT incarnation FROM "{schema}".meta"#);
    let row = client.query_typed_one(&text, &[]).await.map_err(translate)?;
    let incarnation = row.try_get(0).map_err(translate)?;
    let kinds = kinds(client, schema).await?;
    let sql = Sql { schema: schema.to_owned(), kinds };
    Ok(Found { sql, incarnation, durability, log_lock: locks.1 })
}

/// The locks of this schema: for making the tables, and for writing the log.
async fn locks(client: &Client, schema: &str) -> Result<(i64, i64), tokio_postgres::Error> {
    let text = "SELECT hashtextextended('windlass tables ' || $1, 0), \
        hashtextextended('windlass log ' || $1, 0)";
    let row = client.query_typed_one(text, &[(&schema, Type::TEXT)]).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

async fn durability(client: &Client) -> Result<String, StoreError> {
    let text = "SELECT current_setting('fsync'), current_setting('synchronous_commit'), \
        current_setting('full_page_writes')";
    let row = client.query_typed_one(text, &[]).await.map_err(translate)?;
    let read = |at: usize| row.try_get::<_, String>(at).map_err(translate);
    let (fsync, commit, pages) = (read(0)?, read(1)?, read(2)?);
    let commit = if commit == "off" { "on".into() } else { commit };
    let found = format!("fsync={fsync}, full_page_writes={pages}, synchronous_commit={commit}");
    if fsync != "on" {
        return Err(StoreError::NotDurable { found, wanted: "fsync=on" });
    }
    Ok(found)
}

/// The format of the tables; none when there are none yet.
async fn format(client: &Client, schema: &str) -> Result<Option<i64>, StoreError> {
    let text = "SELECT to_regclass($1) IS NOT NULL";
    let meta = format!(r#""{schema}".meta"#);
    let row = client.query_typed_one(text, &[(&meta, Type::TEXT)]).await;
    if !row.and_then(|row| row.try_get::<_, bool>(0)).map_err(translate)? {
        return Ok(None);
    }
    let text = format!(r#"SELECT format, lowest FROM "{schema}".meta"#);
    let row = client.query_typed_one(&text, &[]).await.map_err(translate)?;
    let read = |at: usize| row.try_get::<_, i64>(at).map_err(translate);
    let (found, lowest) = (read(0)?, read(1)?);
    if lowest > FORMAT {
        return Err(StoreError::Incompatible { found, supported: FORMAT });
    }
    Ok(Some(found))
}

/// Makes or completes the tables, one program at a time. The others look again and again rather
/// than wait in line, so that none of them holds a snapshot open.
async fn make(client: &Client, schema: &str, lock: i64) -> Result<(), StoreError> {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        client.batch_execute("BEGIN").await.map_err(translate)?;
        let made = try_make(client, schema, lock).await;
        let end = if matches!(made, Ok(true)) { "COMMIT" } else { "ROLLBACK" };
        client.batch_execute(end).await.map_err(translate)?;
        if made? {
            return Ok(());
        }
        if Instant::now() > give_up_at {
            return Err(unavailable(Oddity::Migrating));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn try_make(client: &Client, schema: &str, lock: i64) -> Result<bool, StoreError> {
    let text = "SELECT pg_try_advisory_xact_lock($1)";
    let row = client.query_typed_one(text, &[(&lock, Type::INT8)]).await;
    if !row.and_then(|row| row.try_get::<_, bool>(0)).map_err(translate)? {
        return Ok(false);
    }
    let found = format(client, schema).await?;
    let done = usize::try_from(found.unwrap_or(0)).unwrap_or(usize::MAX);
    let mut script =
        format!(r#"CREATE SCHEMA IF NOT EXISTS "{schema}"; SET LOCAL search_path = "{schema}";"#);
    for migration in MIGRATIONS.iter().skip(done) {
        script += migration;
    }
    script += &match found {
        None => {
            let incarnation = uuid::Uuid::now_v7();
            format!("INSERT INTO meta VALUES (1, {FORMAT}, 1, '{incarnation}');")
        }
        Some(_) => format!("UPDATE meta SET format = greatest(format, {FORMAT});"),
    };
    client.batch_execute(&script).await.map_err(translate)?;
    Ok(true)
}

/// What the columns of the tables hold, as the database has it.
async fn kinds(client: &Client, schema: &str) -> Result<BTreeMap<Table, Vec<Kind>>, StoreError> {
    let text = "SELECT table_name::text, column_name::text, data_type::text \
        FROM information_schema.columns WHERE table_schema = $1";
    let rows = client.query_typed(text, &[(&schema, Type::TEXT)]).await;
    let mut columns = BTreeMap::new();
    for row in rows.map_err(translate)? {
        let read = |at: usize| row.try_get::<_, String>(at).map_err(translate);
        let kind = if read(2)? == "bigint" { Kind::Int } else { Kind::Text };
        columns.insert((read(0)?, read(1)?), kind);
    }
    let mut kinds = BTreeMap::new();
    for table in Table::ALL {
        let spec = table.spec();
        let kind = |column: &&str| {
            let missing = || unavailable(Oddity::Column((*column).to_owned(), spec.name));
            columns.get(&(spec.name.to_owned(), (*column).to_owned())).copied().ok_or_else(missing)
        };
        let all = spec.key.iter().chain(spec.columns).map(kind).collect::<Result<_, _>>()?;
        kinds.insert(*table, all);
    }
    Ok(kinds)
}
