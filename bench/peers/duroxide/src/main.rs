//! Orchestrations of activities that do nothing, on the SQLite provider of duroxide.
//!
//! `peer-duroxide FILE [--as-shipped] [--workflows N] [--steps N] [--fan-out] [--at-once N]
//! [--dispatchers N] [--workers N]` prints one line of JSON.

mod work;

use std::sync::Arc;

use duroxide::providers::sqlite::SqliteProvider;
use sqlx::sqlite::SqlitePool;

use crate::work::{Failure, Work};

/// How many connections the provider opens.
const CONNECTIONS: usize = 5;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let as_shipped = work::take(&mut args, "--as-shipped");
    let work = Work::read(args)?;
    if work.file.exists() {
        return Err(format!("{} already exists", work.file.display()).into());
    }
    std::fs::File::create(&work.file)?;
    let url = format!("sqlite:{}", work.file.display());
    let provider = Arc::new(SqliteProvider::new(&url, None).await?);
    let before = settings(provider.get_pool(), as_shipped).await?;
    let mut report = work.measure(provider.clone()).await?;
    let after = read_back(provider.get_pool()).await?;
    if before != after {
        return Err(format!("the settings changed: {before}, then {after}").into());
    }
    report["peer"] = if as_shipped { "duroxide as shipped" } else { "duroxide" }.into();
    report["durability"] = after.into();
    println!("{report}");
    Ok(())
}

/// Makes every connection of the pool durable, unless as shipped; returns the resulting settings.
async fn settings(pool: &SqlitePool, as_shipped: bool) -> Result<String, Failure> {
    if !as_shipped {
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = pool.acquire().await?;
            sqlx::query("PRAGMA synchronous = FULL").execute(&mut *connection).await?;
            held.push(connection);
        }
    }
    read_back(pool).await
}

/// The settings that all connections share, or all that were found.
async fn read_back(pool: &SqlitePool) -> Result<String, Failure> {
    let (mut held, mut said) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let mut connection = pool.acquire().await?;
        let journal: String =
            sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
        let level: i64 =
            sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await?;
        let level = ["OFF", "NORMAL", "FULL", "EXTRA"].get(usize::try_from(level)?).copied();
        said.push(format!("{journal}, synchronous={}", level.unwrap_or("?")));
        held.push(connection);
    }
    said.sort();
    said.dedup();
    Ok(said.join(" / "))
}
