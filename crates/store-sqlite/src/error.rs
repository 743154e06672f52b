use std::error::Error;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode as Code, ffi};
use windlass_store::{Fault, StoreError};

/// Why something was not done: SQLite says why, or the reason is known already.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Trouble {
    Sqlite(#[from] rusqlite::Error),
    Known(#[from] StoreError),
}

impl From<Fault> for Trouble {
    /// The error that SQLite would have returned.
    fn from(fault: Fault) -> Self {
        let code = match fault {
            Fault::Io => ffi::SQLITE_IOERR,
            Fault::Full => ffi::SQLITE_FULL,
        };
        let said = Some("injected by a failpoint".into());
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), said).into()
    }
}

impl Trouble {
    pub(crate) fn is(&self, code: Code) -> bool {
        matches!(self, Trouble::Sqlite(error) if error.sqlite_error_code() == Some(code))
    }

    pub(crate) fn into_error(self, path: &Path) -> StoreError {
        match self {
            Trouble::Sqlite(error) => translate(error, path),
            Trouble::Known(error) => error,
        }
    }
}

/// What SQLite itself has no complaint about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Oddity {
    #[error("it holds other tables than those of Windlass")]
    Foreign,
    #[error("it is empty")]
    Empty,
    #[error("the transaction has ended")]
    Ended,
    #[error("{} cannot be opened: no folder, no permission, or too many open files", .0.display())]
    Unwritable(PathBuf),
    #[error("another program was busy writing all the time: try again")]
    Busy,
    #[error(
        "the file was removed or replaced while it was open: restart to go on with what is there"
    )]
    Gone,
}

pub(crate) fn corrupt(path: &Path, source: impl Error + Send + Sync + 'static) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), source: Box::new(source) }
}

/// A key is there already.
const TAKEN: [i32; 3] = [
    ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
    ffi::SQLITE_CONSTRAINT_UNIQUE,
    ffi::SQLITE_CONSTRAINT_ROWID,
];

fn translate(error: rusqlite::Error, path: &Path) -> StoreError {
    let extended = error.sqlite_error().map(|found| found.extended_code);
    match error.sqlite_error_code() {
        // Whoever waits for a lock has waited long enough by then.
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
            StoreError::Unavailable(Box::new(Oddity::Busy))
        }
        Some(Code::ReadOnly | Code::CannotOpen) => {
            StoreError::Unavailable(Box::new(Oddity::Unwritable(path.into())))
        }
        Some(Code::ConstraintViolation) if extended.is_some_and(|c| TAKEN.contains(&c)) => {
            StoreError::Conflict
        }
        Some(Code::ConstraintViolation | Code::TooBig | Code::TypeMismatch) => {
            StoreError::Refused(Box::new(error))
        }
        Some(Code::DiskFull) => StoreError::Full,
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => corrupt(path, error),
        // Statements and what reads their rows are made for the tables as they should be.
        Some(_) if extended == Some(ffi::SQLITE_ERROR) => corrupt(path, error),
        None => corrupt(path, error),
        Some(_) => StoreError::Unavailable(Box::new(error)),
    }
}
