use std::path::PathBuf;
use std::process::ExitCode;

use thiserror::Error;
use windlass::{Cursor, Error, OpenError, Rejection};
use windlass_store::StoreError;

use crate::bench::BenchError;
use crate::demo::DemoError;
use crate::output::counted;

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
    #[error("the payload cannot be read from {}: {error}", path.display())]
    PayloadFile { path: PathBuf, error: std::io::Error },
    #[error("{} not replayed", were(*refused))]
    NotReplayed { refused: u64, not_there: bool },
    #[error("{what} {name} has not ended within {waited}")]
    TimedOut { what: &'static str, name: String, waited: String },
    #[error(
        "the log does not reach back to {asked}, or is not the one that it came from; go on with \
         --after {oldest}, knowing that there is a gap, or without --after"
    )]
    CursorExpired { asked: String, oldest: String },
    #[error("Ctrl-C cannot be listened for: {0}")]
    Signal(std::io::Error),
    #[error("there is no program {0} that could be run")]
    NoProgram(String),
    #[error("stopped at once; what was under way waits again when its lease has run out")]
    Interrupted,
    #[error("{what}: {error}")]
    System { what: &'static str, error: std::io::Error },
}

fn were(count: u64) -> String {
    format!("{} {}", counted(count, "task"), if count == 1 { "was" } else { "were" })
}

impl CliError {
    /// An answer that concerns a task or a lane, with its name where it is not there.
    pub(crate) fn about(what: &'static str, name: impl ToString, error: Error) -> Self {
        match error {
            Error::Rejected(Rejection::TaskNotFound | Rejection::LaneNotFound) => {
                CliError::NotFound { what, name: name.to_string() }
            }
            other => CliError::Engine(other),
        }
    }

    /// A cursor that the log cannot go on from, with the one that it can.
    pub(crate) fn expired(asked: Option<&Cursor>, error: Error) -> Self {
        match (asked, error) {
            (Some(asked), Error::CursorExpired(expired)) => {
                let written = |cursor: &Cursor| format!("{}:{}", cursor.incarnation, cursor.seq);
                let (asked, oldest) = (written(asked), written(&expired.oldest));
                CliError::CursorExpired { asked, oldest }
            }
            (_, other) => CliError::Engine(other),
        }
    }

    /// The stable name of this error, for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            CliError::Open(error) => error.code(),
            CliError::Engine(error) => error.code(),
            CliError::Store(error) => error.code(),
            CliError::Bench(_) => "bench",
            CliError::Demo(error) => error.code(),
            CliError::NotFound { what: "lane", .. } => Rejection::LaneNotFound.code(),
            CliError::NotFound { .. } => Rejection::TaskNotFound.code(),
            CliError::NoDatabase(_) => "no_database",
            CliError::PayloadFile { .. } => "payload_file",
            CliError::NotReplayed { .. } => "not_replayed",
            CliError::TimedOut { .. } => "timed_out",
            CliError::CursorExpired { .. } => "cursor_expired",
            CliError::Signal(_) => "signal",
            CliError::NoProgram(_) => "no_program",
            CliError::Interrupted => "interrupted",
            CliError::System { .. } => "system",
        }
    }

    /// 1 when something went wrong, 3 when the rules say no, 4 when it is not there, 130 when a
    /// signal ended it. Wrong arguments are 2.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            CliError::NotFound { .. }
            | CliError::NoDatabase(_)
            | CliError::NoProgram(_)
            | CliError::NotReplayed { not_there: true, .. } => 4,
            CliError::Interrupted | CliError::Demo(DemoError::Interrupted) => 130,
            CliError::Engine(Error::Rejected(_) | Error::NotCompleted { .. })
            | CliError::NotReplayed { .. } => 3,
            _ => 1,
        })
    }
}
