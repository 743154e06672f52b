use std::process::ExitCode;

use thiserror::Error;
use windlass::{Error, OpenError, Rejection};
use windlass_store::StoreError;

use crate::bench::BenchError;
use crate::demo::DemoError;

/// Why a command did not do what it was asked. Said in one line.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error("there is no {what} {name}")]
    NotFound { what: &'static str, name: String },
    #[error("there is no database at {0}: name the one that your program uses")]
    NoDatabase(String),
    #[error("there is no program {0} that could be run")]
    NoProgram(String),
    #[error("stopped at once; what was under way waits again when its lease has run out")]
    Interrupted,
    #[error("{what}: {error}")]
    System { what: &'static str, error: std::io::Error },
}

impl CliError {
    /// The stable name of this error, for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            CliError::Open(error) => error.code(),
            CliError::Engine(error) => error.code(),
            CliError::Store(_) => "store",
            CliError::Bench(_) => "bench",
            CliError::Demo(error) => error.code(),
            CliError::NotFound { .. } => "not_found",
            CliError::NoDatabase(_) => "no_database",
            CliError::NoProgram(_) => "no_program",
            CliError::Interrupted => "interrupted",
            CliError::System { .. } => "system",
        }
    }

    /// 1 when something went wrong, 3 when the rules say no, 4 when it is not there, 130 when a
    /// signal ended it. Wrong arguments are 2.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let not_there = [Rejection::TaskNotFound.code(), Rejection::LaneNotFound.code()];
        ExitCode::from(match self {
            CliError::NotFound { .. } | CliError::NoDatabase(_) | CliError::NoProgram(_) => 4,
            CliError::Interrupted | CliError::Demo(DemoError::Interrupted) => 130,
            CliError::Engine(error) if not_there.contains(&error.code()) => 4,
            CliError::Engine(Error::Rejected(_) | Error::NotCompleted { .. }) => 3,
            _ => 1,
        })
    }
}
