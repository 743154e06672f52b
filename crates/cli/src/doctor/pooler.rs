//! Whether somebody in between lends connections out, and for how long.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use windlass_store::StoreError;
use windlass_store_postgres::connect;

use crate::doctor::finding::Finding;

const CHECK: &str = "pooler";
/// A connection of one's own answers sooner; a pool that is empty does not.
const SOON: Duration = Duration::from_secs(2);
/// How often to try to see a connection in two hands.
const TRIES: usize = 5;
/// Nobody else prepares this.
const STATEMENT: &str = "SELECT 'windlass doctor'";

/// Who is in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pooler {
    Nobody,
    /// One that was not seen to give a connection to anybody else while its client was there.
    OfSessions,
    OfTransactions {
        /// Whether statements follow their client from connection to connection.
        keeps_statements: bool,
    },
}

pub(super) async fn look(url: &str, prepare: Option<bool>) -> Finding {
    match find(url).await {
        Ok(pooler) => judge(pooler, prepare),
        Err(error) => {
            let found = format!("not looked at: {error}");
            Finding::warning(CHECK, found, "look again when connections are free")
        }
    }
}

/// Where the look took too long.
pub(super) fn busy() -> Finding {
    Finding::warning(CHECK, "not looked at: no answer", "look again when connections are free")
}

fn judge(pooler: Pooler, prepare: Option<bool>) -> Finding {
    match (pooler, prepare) {
        (Pooler::Nobody, Some(false)) => Finding::warning(
            CHECK,
            "none in between, and statements are not prepared",
            "take prepare=off out of the URL: it costs speed, and wakes take a second",
        ),
        (Pooler::Nobody, _) => Finding::ok(CHECK, "none in between"),
        (Pooler::OfSessions, Some(true)) => Finding::ok(CHECK, "one that lends sessions"),
        (Pooler::OfSessions, _) => Finding {
            advice: "say prepare=on in the URL if it does: it is faster, and wakes are at once"
                .to_owned(),
            ..Finding::ok(CHECK, "one that seems to lend sessions; statements are not prepared")
        },
        (Pooler::OfTransactions { keeps_statements: false }, Some(true)) => Finding::problem(
            CHECK,
            "one that lends transactions and mixes up prepared statements",
            "take prepare=on out of the URL: a commit may be answered that was not made",
        ),
        (Pooler::OfTransactions { keeps_statements: true }, Some(true)) => {
            Finding::ok(CHECK, "one that lends transactions and keeps prepared statements")
        }
        (Pooler::OfTransactions { .. }, _) => Finding::ok(
            CHECK,
            "one that lends transactions: statements are not prepared, wakes take a second",
        ),
    }
}

async fn find(url: &str) -> Result<Pooler, StoreError> {
    if is_direct(url).await? {
        return Ok(Pooler::Nobody);
    }
    let ((one, _), (two, _)) = (connect(url).await?, connect(url).await?);
    for _ in 0..TRIES {
        if is_shared(&one, &two).await {
            let keeps_statements = keeps_statements(&one, &two).await;
            return Ok(Pooler::OfTransactions { keeps_statements });
        }
    }
    Ok(Pooler::OfSessions)
}

/// What is asked for when a connection is made reaches the server only if it is made for us.
async fn is_direct(url: &str) -> Result<bool, StoreError> {
    let mark = if url.contains('?') { '&' } else { '?' };
    match connect(&format!("{url}{mark}options=-c%20windlass.asked%3Dyes")).await {
        Ok((client, _)) => {
            let asked = "SELECT current_setting('windlass.asked', true)";
            let row = client.query_typed_one(asked, &[]).await.map_err(unavailable)?;
            let found: Option<String> = row.try_get(0).map_err(unavailable)?;
            Ok(found.as_deref() == Some("yes"))
        }
        Err(error) if error.to_string().contains("startup parameter") => Ok(false),
        Err(error) => Err(error),
    }
}

fn unavailable(error: tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

/// Whether two clients that are both there were seen on one connection, or one on two. With
/// connections of their own, neither can be.
async fn is_shared(one: &Client, two: &Client) -> bool {
    let before = process(one).await;
    let begun = two.batch_execute("BEGIN").await.is_ok();
    let held = process(two).await;
    let after = process(one).await;
    let shared = begun && (held == before || after != before || after.is_none());
    // Where it cannot be ended here, it ends with the client.
    let _ = two.batch_execute("ROLLBACK").await;
    shared
}

/// The process that serves a client; none where none is free.
async fn process(client: &Client) -> Option<i32> {
    let asked = client.query_typed_one("SELECT pg_backend_pid()", &[]);
    tokio::time::timeout(SOON, asked).await.ok()?.ok()?.try_get(0).ok()
}

/// Prepares a statement, takes its connection away, and sees whether it is known on another.
async fn keeps_statements(one: &Client, two: &Client) -> bool {
    let Ok(statement) = one.prepare(STATEMENT).await else { return false };
    for _ in 0..TRIES {
        let Some(name) = hold(two).await else { continue };
        let asked = tokio::time::timeout(SOON, one.query(&statement, &[])).await;
        let is_lost = match &asked {
            Ok(Err(error)) => error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME),
            // Nothing else is free: it cannot be said.
            Err(_) => true,
            Ok(Ok(_)) => false,
        };
        if is_lost {
            // What nobody keeps account of would stay behind for others to stumble over.
            let _ = two.batch_execute(&format!("DEALLOCATE \"{name}\"")).await;
        }
        let _ = two.batch_execute("COMMIT").await;
        return matches!(asked, Ok(Ok(_)));
    }
    false
}

/// Begins a transaction; the name of the statement if it is known to the connection, and else ends
/// it.
async fn hold(client: &Client) -> Option<String> {
    client.batch_execute("BEGIN").await.ok()?;
    let text = format!(
        "SELECT name FROM pg_prepared_statements WHERE statement = '{}'",
        STATEMENT.replace('\'', "''")
    );
    let found = client.query_typed(&text, &[]).await;
    let name = found.ok().and_then(|rows| rows.first()?.try_get(0).ok());
    if name.is_none() {
        let _ = client.batch_execute("ROLLBACK").await;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn what_is_said_in_the_url_is_held_against_what_is_there() {
        let lost = Pooler::OfTransactions { keeps_statements: false };
        let kept = Pooler::OfTransactions { keeps_statements: true };
        for (pooler, prepare, expected) in [
            (Pooler::Nobody, None, Level::Ok),
            (Pooler::Nobody, Some(true), Level::Ok),
            (Pooler::Nobody, Some(false), Level::Warning),
            (Pooler::OfSessions, None, Level::Ok),
            (Pooler::OfSessions, Some(true), Level::Ok),
            (lost, None, Level::Ok),
            (lost, Some(false), Level::Ok),
            (lost, Some(true), Level::Problem),
            (kept, Some(true), Level::Ok),
            (kept, None, Level::Ok),
        ] {
            assert_eq!(judge(pooler, prepare).level, expected, "{pooler:?}, {prepare:?}");
        }
    }
}
