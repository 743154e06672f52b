use std::error::Error;

use tokio_postgres::error::SqlState;
use windlass_store::StoreError;

/// What Postgres itself has no complaint about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Oddity {
    #[error("the URL of the database: {0}")]
    Url(String),
    #[error("{0:?} does not name a schema: small letters, digits and _, at most 63")]
    Schema(String),
    #[error("a commit is still under way")]
    UnderWay,
    #[error("it is too long ago that a commit was made to say what became of it")]
    LongAgo,
    #[error("the server has crashed since, and may have given the name of a commit again")]
    Crashed,
    #[error("the transaction has ended")]
    Ended,
    #[error("the connection says nothing more")]
    Silent,
    #[error("another program is making the tables")]
    Migrating,
}

/// A row count was not what it had to be: see `sql::exactly`.
pub(crate) const MISCOUNTED: SqlState = SqlState::DIVISION_BY_ZERO;

/// With all that is behind the error: the driver says the least on top.
pub(crate) fn unavailable(error: impl Error) -> StoreError {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(known) = cause {
        (text, cause) = (format!("{text}: {known}"), known.source());
    }
    StoreError::Unavailable(text.into())
}

/// Whether the server said no. Otherwise it said nothing, and anything may have happened.
pub(crate) fn is_answer(error: &tokio_postgres::Error) -> bool {
    // 08 is a connection that broke, 57P a server that ends it.
    let gone = |code: &SqlState| code.code().starts_with("08") || code.code().starts_with("57P");
    error.code().is_some_and(|code| !gone(code))
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
    match &code.code()[..2] {
        _ if *code == SqlState::DISK_FULL => StoreError::Full,
        "22" | "23" | "54" => StoreError::Refused(Box::new(error)),
        _ => unavailable(error),
    }
}
