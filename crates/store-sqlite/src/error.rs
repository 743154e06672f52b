use std::path::Path;

use rusqlite::ffi;
use rusqlite::{Error, ErrorCode};
use thiserror::Error;
use windlass_store::{Fault, StoreError};

/// Why a change set was not written.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A version is not the one that was read.
    Clash,
    Sqlite(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Sqlite(error)
    }
}

/// What is wrong with a file that SQLite itself has no complaint about.
#[derive(Debug, Error)]
pub(crate) enum Damage {
    #[error("it holds other tables than those of Windlass")]
    Foreign,
    #[error("it is empty")]
    Empty,
}

#[derive(Debug, Error)]
#[error("the transaction has ended")]
pub(crate) struct Ended;

pub(crate) fn is(error: &Error, code: ErrorCode) -> bool {
    error.sqlite_error_code() == Some(code)
}

/// The error that SQLite would have returned.
pub(crate) fn of_fault(fault: Fault) -> Error {
    let code = match fault {
        Fault::Io => ffi::SQLITE_IOERR,
        Fault::Full => ffi::SQLITE_FULL,
    };
    Error::SqliteFailure(ffi::Error::new(code), Some("injected by a failpoint".into()))
}

pub(crate) fn corrupt(
    path: &Path,
    source: impl std::error::Error + Send + Sync + 'static,
) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), source: Box::new(source) }
}

/// What an error of a transaction means to the engine.
pub(crate) fn of_writing(error: Error, path: &Path) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Conflict,
        Some(ErrorCode::ConstraintViolation) if is_taken(&error) => StoreError::Conflict,
        _ => of_reading(error, path),
    }
}

/// What an error means where nothing can collide.
pub(crate) fn of_reading(error: Error, path: &Path) -> StoreError {
    match &error {
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => return corrupt(path, error),
        Error::ToSqlConversionFailure(..) => return StoreError::Refused(Box::new(error)),
        _ => {}
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => corrupt(path, error),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            StoreError::Refused(Box::new(error))
        }
        _ => StoreError::Unavailable(Box::new(error)),
    }
}

/// What an error means while the file is opened: a statement that is refused then names a table
/// or a column that is not there.
pub(crate) fn of_opening(error: Error, path: &Path) -> StoreError {
    match &error {
        Error::QueryReturnedNoRows => corrupt(path, error),
        Error::SqliteFailure(found, _) if found.extended_code == ffi::SQLITE_ERROR => {
            corrupt(path, error)
        }
        Error::SqlInputError { .. } => corrupt(path, error),
        _ => of_reading(error, path),
    }
}

/// Whether a key is there already.
fn is_taken(error: &Error) -> bool {
    let taken = [
        ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
        ffi::SQLITE_CONSTRAINT_UNIQUE,
        ffi::SQLITE_CONSTRAINT_ROWID,
    ];
    matches!(error, Error::SqliteFailure(found, _) if taken.contains(&found.extended_code))
}
