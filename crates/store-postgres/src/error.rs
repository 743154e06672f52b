use std::error::Error;

use tokio_postgres::error::{Severity, SqlState};
use windlass_postgres_link::LinkError;
use windlass_store::StoreError;

/// Errors that Postgres does not report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("{pair:?} in the URL of the database: this is {wanted}")]
    Value { pair: String, wanted: &'static str },
    #[error("the URL of the database: {0}")]
    Link(#[from] LinkError),
    #[error("{0:?} is not a valid schema name: lower-case ASCII letters, digits and _, at most 54")]
    Schema(String),
    #[error("a transaction pooler is in between: set prepare=off in the URL")]
    Pooler(#[source] tokio_postgres::Error),
    #[error("the commit is still in flight")]
    UnderWay,
    #[error("the outcome of the commit can no longer be determined")]
    NoTrace,
    #[error("the transaction has ended")]
    Ended,
    #[error("the connection timed out")]
    Silent,
    #[error("another process is creating the tables")]
    Migrating,
}

/// Raised when a row count is wrong: see `sql::exactly`.
pub(crate) const MISCOUNTED: SqlState = SqlState::DIVISION_BY_ZERO;

pub(crate) fn rejected(error: impl Into<DecodeError>) -> StoreError {
    StoreError::Rejected(Box::new(error.into()))
}

/// Includes all causes: the driver's top-level error says little.
pub(crate) fn unavailable(error: impl Error) -> StoreError {
    StoreError::Unavailable(whole(&error).into())
}

/// The first line of each cause: further lines may contain the row itself.
fn whole(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let heads = causes.map(|cause| cause.to_string().lines().take(1).collect::<String>());
    std::iter::once(error.to_string()).chain(heads).collect::<Vec<_>>().join(": ")
}

/// Whether the server rejected the statement. Otherwise the connection or the server failed, and
/// the outcome is unknown.
pub(crate) fn is_answer(error: &tokio_postgres::Error) -> bool {
    let Some(error) = error.as_db_error() else { return false };
    // Class 08 is a broken connection, 57P a server shutdown.
    let is_disconnected = ["08", "57P"].iter().any(|class| error.code().code().starts_with(class));
    error.parsed_severity() == Some(Severity::Error) && !is_disconnected
}

pub(crate) fn translate(error: tokio_postgres::Error) -> StoreError {
    let Some(code) = error.code() else { return unavailable(error) };
    let conflicts = [
        MISCOUNTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::UNIQUE_VIOLATION,
    ];
    if conflicts.contains(code) {
        return StoreError::Conflict;
    }
    match (code.code(), &code.code()[..2]) {
        ("53100", _) => StoreError::Full,
        // A statement that is unknown, or prepared twice; and one that timed out.
        ("26000" | "42P05", _) => unavailable(DecodeError::Pooler(error)),
        (_, "22" | "23" | "54") | ("57014", _) => StoreError::Rejected(whole(&error).into()),
        _ => unavailable(error),
    }
}
