use std::error::Error;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode as Code, ffi};
use windlass_store::{Fault, StoreError};

/// A SQLite error, or a store error determined before.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum SqliteError {
    Sqlite(#[from] rusqlite::Error),
    Known(#[from] StoreError),
}

impl From<Fault> for SqliteError {
    /// The error that SQLite would return.
    fn from(fault: Fault) -> Self {
        let code = match fault {
            Fault::Io => ffi::SQLITE_IOERR,
            Fault::Full => ffi::SQLITE_FULL,
        };
        let said = Some("injected by a failpoint".into());
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), said).into()
    }
}

impl SqliteError {
    pub(crate) fn is(&self, code: Code) -> bool {
        matches!(self, SqliteError::Sqlite(error) if error.sqlite_error_code() == Some(code))
    }

    pub(crate) fn into_error(self, path: &Path) -> StoreError {
        match self {
            SqliteError::Sqlite(error) => translate(error, path),
            SqliteError::Known(error) => error,
        }
    }
}

/// Errors that SQLite does not report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("it contains tables that are not from Windlass")]
    Foreign,
    #[error("the file is empty")]
    Empty,
    #[error("the transaction has ended")]
    Ended,
    #[error("{} cannot be opened: no folder, no permission, or too many open files", .0.display())]
    Unwritable(PathBuf),
    #[error("another process held the write lock for too long: retry")]
    Busy,
    #[error("the file was removed or replaced while it was open: restart to use the current file")]
    Gone,
}

pub(crate) fn corrupt(path: &Path, source: impl Error + Send + Sync + 'static) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), source: Box::new(source) }
}

/// Constraint violations that mean that a key exists.
const TAKEN: [i32; 3] = [
    ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
    ffi::SQLITE_CONSTRAINT_UNIQUE,
    ffi::SQLITE_CONSTRAINT_ROWID,
];

fn translate(error: rusqlite::Error, path: &Path) -> StoreError {
    let extended = error.sqlite_error().map(|found| found.extended_code);
    match error.sqlite_error_code() {
        // The busy timeout is over by then.
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
            StoreError::Unavailable(Box::new(DecodeError::Busy))
        }
        Some(Code::ReadOnly | Code::CannotOpen) => {
            StoreError::Unavailable(Box::new(DecodeError::Unwritable(path.into())))
        }
        Some(Code::ConstraintViolation) if extended.is_some_and(|c| TAKEN.contains(&c)) => {
            StoreError::Conflict
        }
        Some(Code::ConstraintViolation | Code::TooBig | Code::TypeMismatch) => {
            StoreError::Rejected(Box::new(error))
        }
        Some(Code::DiskFull) => StoreError::Full,
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => corrupt(path, error),
        // Statements and row decoding assume the expected tables: a mismatch is damage.
        Some(_) if extended == Some(ffi::SQLITE_ERROR) => corrupt(path, error),
        None => corrupt(path, error),
        Some(_) => StoreError::Unavailable(Box::new(error)),
    }
}
