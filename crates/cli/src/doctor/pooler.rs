//! Detects a connection pooler and its pooling mode.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use windlass_store::StoreError;
use windlass_store_postgres::connect;

use crate::doctor::finding::Finding;

const CHECK: &str = "pooler";
/// A direct connection answers sooner; an exhausted pool does not.
const SOON: Duration = Duration::from_secs(2);
/// How often to try to observe a shared connection.
const TRIES: usize = 5;
/// A statement that no other program prepares.
const STATEMENT: &str = "SELECT 'windlass doctor'";

/// The pooler between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pooler {
    None,
    /// Not seen to share the connection of a connected client.
    OfSessions,
    OfTransactions {
        /// Whether prepared statements follow their client across connections.
        tracks_statements: bool,
    },
}

pub(super) async fn check(url: &str, prepare: Option<bool>) -> Finding {
    match find(url).await {
        Ok(pooler) => judge(pooler, prepare),
        Err(error) => {
            let found = format!("not checked: {error}");
            Finding::warning(CHECK, found, "check again when connections are free")
        }
    }
}

/// The finding if the check timed out.
pub(super) fn busy() -> Finding {
    Finding::warning(CHECK, "not checked: no answer", "check again when connections are free")
}

fn judge(pooler: Pooler, prepare: Option<bool>) -> Finding {
    match (pooler, prepare) {
        (Pooler::None, Some(false)) => Finding::warning(
            CHECK,
            "none between client and server, and statements are not prepared",
            "remove prepare=off from the URL: it is slower, and wakes take a second",
        ),
        (Pooler::None, _) => Finding::ok(CHECK, "none between client and server"),
        (Pooler::OfSessions, Some(true)) => Finding::ok(CHECK, "session pooling"),
        (Pooler::OfSessions, _) => Finding {
            advice: "if so, set prepare=on in the URL: it is faster, and wakes are immediate"
                .to_owned(),
            ..Finding::ok(CHECK, "probably session pooling; statements are not prepared")
        },
        (Pooler::OfTransactions { tracks_statements: false }, Some(true)) => Finding::problem(
            CHECK,
            "transaction pooling that mixes up prepared statements",
            "remove prepare=on from the URL: a commit may be acknowledged that did not happen",
        ),
        (Pooler::OfTransactions { tracks_statements: true }, Some(true)) => {
            Finding::ok(CHECK, "transaction pooling with support for prepared statements")
        }
        (Pooler::OfTransactions { .. }, _) => Finding::ok(
            CHECK,
            "transaction pooling: statements are not prepared, wakes take a second",
        ),
    }
}

async fn find(url: &str) -> Result<Pooler, StoreError> {
    if is_direct(url).await? {
        return Ok(Pooler::None);
    }
    let ((one, _), (two, _)) = (connect(url).await?, connect(url).await?);
    for _ in 0..TRIES {
        if is_shared(&one, &two).await {
            let tracks_statements = tracks_statements(&one, &two).await;
            return Ok(Pooler::OfTransactions { tracks_statements });
        }
    }
    Ok(Pooler::OfSessions)
}

/// Startup options reach the server only on a direct connection.
async fn is_direct(url: &str) -> Result<bool, StoreError> {
    let mark = if url.contains('?') { '&' } else { '?' };
    match connect(&format!("{url}{mark}options=-c%20windlass.asked%3Dyes")).await {
        Ok((client, _)) => {
            let query = "SELECT current_setting('windlass.asked', true)";
            let row = client.query_typed_one(query, &[]).await.map_err(unavailable)?;
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

/// Whether two connected clients were seen on one server connection, or one client on two. Neither
/// happens with direct connections.
async fn is_shared(one: &Client, two: &Client) -> bool {
    let before = process(one).await;
    let in_transaction = two.batch_execute("BEGIN").await.is_ok();
    let held = process(two).await;
    let after = process(one).await;
    let shared = in_transaction && (held == before || after != before || after.is_none());
    // If the rollback fails, the transaction ends with the client.
    let _ = two.batch_execute("ROLLBACK").await;
    shared
}

/// The server process of a client; none if no connection is free.
async fn process(client: &Client) -> Option<i32> {
    let query = client.query_typed_one("SELECT pg_backend_pid()", &[]);
    tokio::time::timeout(SOON, query).await.ok()?.ok()?.try_get(0).ok()
}

/// Prepares a statement, blocks its connection, and checks whether another one knows it.
async fn tracks_statements(one: &Client, two: &Client) -> bool {
    let Ok(statement) = one.prepare(STATEMENT).await else { return false };
    for _ in 0..TRIES {
        let Some(name) = hold(two).await else { continue };
        let queried = tokio::time::timeout(SOON, one.query(&statement, &[])).await;
        let is_lost = match &queried {
            Ok(Err(error)) => error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME),
            // No other connection is free: undecidable.
            Err(_) => true,
            Ok(Ok(_)) => false,
        };
        if is_lost {
            // The pooler does not track it, so it would stay on the connection for other clients.
            let _ = two.batch_execute(&format!("DEALLOCATE \"{name}\"")).await;
        }
        let _ = two.batch_execute("COMMIT").await;
        return matches!(queried, Ok(Ok(_)));
    }
    false
}

/// Begins a transaction and returns the name of the statement if this connection knows it; ends the
/// transaction otherwise.
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
    fn the_prepare_option_is_checked_against_the_pooler() {
        let lost = Pooler::OfTransactions { tracks_statements: false };
        let tracked = Pooler::OfTransactions { tracks_statements: true };
        for (pooler, prepare, expected) in [
            (Pooler::None, None, Level::Ok),
            (Pooler::None, Some(true), Level::Ok),
            (Pooler::None, Some(false), Level::Warning),
            (Pooler::OfSessions, None, Level::Ok),
            (Pooler::OfSessions, Some(true), Level::Ok),
            (lost, None, Level::Ok),
            (lost, Some(false), Level::Ok),
            (lost, Some(true), Level::Problem),
            (tracked, Some(true), Level::Ok),
            (tracked, None, Level::Ok),
        ] {
            assert_eq!(judge(pooler, prepare).level, expected, "{pooler:?}, {prepare:?}");
        }
    }
}
