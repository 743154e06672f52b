//! Queues one task in a SQLite file, claims it, completes it.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use windlass_core::Payload;
use windlass_core::command::{Claim, Complete, Create, NewTask};
use windlass_engine::{Config, Engine, Error};
use windlass_store_sqlite::SqliteStore;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let engine = Engine::with_store(SqliteStore::open("tasks.db")?, Config::default()).await?;

    let mut task = NewTask::new(Engine::new_id(), "email");
    task.payload = Some(Payload::json(r#"{"to":"ada@example.com"}"#));
    engine.submit(Create::one(task)).await?;

    for claimed in engine.claim(Claim::new("worker-1"), Duration::from_secs(30)).await? {
        println!("sending {:?}", claimed.input);
        engine.submit(Complete { fence: claimed.task.fence(), result: None }).await?;
    }
    engine.shutdown().await
}
