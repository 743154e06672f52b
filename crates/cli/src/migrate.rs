use clap::Args;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use windlass::StoreUrl;
use windlass_store::StoreError;

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

/// Make or complete the tables of a store.
#[derive(Debug, Args)]
#[command(
    after_help = "Engines do it by themselves when they start. Do it before them where their \
    role may not make tables, or to have it done when many of them start."
)]
pub(crate) struct Migrate {
    /// Do nothing; exit code 3 where there is something to do.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    target: Target,
}

/// The format of the tables that are there, and the one that this program makes.
struct Formats {
    found: Option<i64>,
    ours: i64,
}

impl Formats {
    fn is_behind(&self) -> bool {
        self.found.is_none_or(|found| found < self.ours)
    }
}

impl Migrate {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let store = &self.target.store;
        let before = formats(store).await?;
        let is_behind = before.is_behind();
        if is_behind && !self.check {
            store.open().await?.close().await?;
        }
        let to = before.found.unwrap_or(0).max(before.ours);
        let done = is_behind && !self.check;
        if self.target.json {
            let store = store.to_string();
            say_json(&json!({ "store": store, "from": before.found, "to": to, "done": done }));
        } else if done {
            match before.found {
                Some(from) => say(&format!("{store}: from format {from} to {to}.")),
                None => say(&format!("{store}: tables are made, in format {to}.")),
            }
        } else if !is_behind {
            say(&format!("{store} has format {to}: there is nothing to do."));
        }
        match (is_behind && self.check, before.found) {
            (true, from) => Err(CliError::Behind { store: store.to_string(), from, to }),
            _ => Ok(()),
        }
    }
}

/// What is there, without touching it. What is not one of ours is told by opening it.
async fn formats(store: &StoreUrl) -> Result<Formats, CliError> {
    let formats = match store {
        StoreUrl::Sqlite(path) => {
            let found = if store.exists() { of_file(path)? } else { None };
            Formats { found, ours: windlass_store_sqlite::FORMAT }
        }
        StoreUrl::Postgres(url) => {
            let found = of_database(url.reveal()).await?;
            Formats { found, ours: windlass_store_postgres::FORMAT }
        }
        StoreUrl::Memory => Formats { found: Some(0), ours: 0 },
    };
    Ok(formats)
}

fn of_file(path: &std::path::Path) -> Result<Option<i64>, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || {
        let conn = Connection::open_with_flags(path, flags)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        conn.query_row("SELECT format, lowest FROM meta", [], read)
    };
    let corrupt = |source: rusqlite::Error| StoreError::Corrupt {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let (found, lowest) = read().map_err(corrupt)?;
    compatible(found, lowest, windlass_store_sqlite::FORMAT)
}

/// A format that this program may work with.
fn compatible(found: i64, lowest: i64, supported: i64) -> Result<Option<i64>, StoreError> {
    if lowest > supported {
        return Err(StoreError::Incompatible { found, supported });
    }
    Ok(Some(found))
}

async fn of_database(url: &str) -> Result<Option<i64>, StoreError> {
    let unavailable = |error: tokio_postgres::Error| {
        let said = error.as_db_error().map(|said| said.message().to_owned());
        StoreError::Unavailable(said.unwrap_or_else(|| error.to_string()).into())
    };
    let (client, options) = windlass_store_postgres::connect(url).await?;
    let schema = &options.schema;
    let is_there = format!("SELECT to_regclass('\"{schema}\".meta') IS NOT NULL");
    let row = client.query_typed_one(&is_there, &[]).await.map_err(unavailable)?;
    if !row.try_get::<_, bool>(0).map_err(unavailable)? {
        return Ok(None);
    }
    let text = format!("SELECT format, lowest FROM \"{schema}\".meta");
    let row = client.query_typed_one(&text, &[]).await.map_err(unavailable)?;
    let (found, lowest) = (row.try_get(0), row.try_get(1));
    let (found, lowest) = (found.map_err(unavailable)?, lowest.map_err(unavailable)?);
    compatible(found, lowest, windlass_store_postgres::FORMAT)
}
