use std::error::Error;

use tokio_postgres::error::{Severity, SqlState};
use windlass_postgres_link::LinkError;
use windlass_store::StoreError;

/// What Postgres itself has no complaint about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Oddity {
    #[error("{pair:?} in the URL of the database: this is {wanted}")]
    Value { pair: String, wanted: &'static str },
    #[error("the URL of the database: {0}")]
    Link(#[from] LinkError),
    #[error("{0:?} does not name a schema: small letters, digits and _, at most 54")]
    Schema(String),
    #[error("a pooler lends connections out in turn: prepare=off in the URL")]
    Pooler(#[source] tokio_postgres::Error),
    #[error("a commit is still under way")]
    UnderWay,
    #[error("there is no trace left of what became of a commit")]
    NoTrace,
    #[error("the transaction has ended")]
    Ended,
    #[error("the connection says nothing more")]
    Silent,
    #[error("another program is making the tables")]
    Migrating,
}

/// A row count was not what it had to be: see `sql::exactly`.
pub(crate) const MISCOUNTED: SqlState = SqlState::DIVISION_BY_ZERO;

pub(crate) fn refused(oddity: impl Into<Oddity>) -> StoreError {
    StoreError::Refused(Box::new(oddity.into()))
}

/// With all that is behind the error: the driver says the least on top.
pub(crate) fn unavailable(error: impl Error) -> StoreError {
    StoreError::Unavailable(whole(&error).into())
}

/// Of what Postgres says its first line: the others may show the row that it is about.
fn whole(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let heads = causes.map(|cause| cause.to_string().lines().take(1).collect::<String>());
    std::iter::once(error.to_string()).chain(heads).collect::<Vec<_>>().join(": ")
}

/// Whether the server said no. Otherwise it said nothing, or ended while it tried, and anything may
/// have happened.
pub(crate) fn is_answer(error: &tokio_postgres::Error) -> bool {
    let Some(error) = error.as_db_error() else { return false };
    // 08 is a connection that broke, 57P a server that ends it.
    let gone = ["08", "57P"].iter().any(|class| error.code().code().starts_with(class));
    error.parsed_severity() == Some(Severity::Error) && !gone
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
        // A statement that is not known, or known already; and one that took too long.
        ("26000" | "42P05", _) => unavailable(Oddity::Pooler(error)),
        (_, "22" | "23" | "54") | ("57014", _) => StoreError::Refused(whole(&error).into()),
        _ => unavailable(error),
    }
}
