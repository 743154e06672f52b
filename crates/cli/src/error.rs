use std::path::PathBuf;
use std::process::ExitCode;

use thiserror::Error;
use windlass::{Cursor, Error, OpenError, Problem, Rejection};
use windlass_store::StoreError;

use crate::bench::BenchError;
use crate::demo::DemoError;
use crate::duration::brief;
use crate::output::counted;

/// Why a command failed, shown on one line.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(Error),
    /// A value outside its limit, named by the option that gave it.
    #[error("{name} {}", problem_text(field, *problem))]
    Invalid { name: &'static str, field: &'static str, problem: Problem },
    #[error("{0} and {1} cannot both come from standard input")]
    OneInput(&'static str, &'static str),
    #[error("the label {0} is given twice")]
    LabelTwice(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error("there is no {what} {name}")]
    NotFound { what: &'static str, name: String },
    #[error("task {0} is not a workflow: see windlass task show {0}")]
    NotAWorkflow(String),
    #[error(
        "workflow {0} has not ended: wait for it (windlass task wait {0}), or cancel it first \
         (windlass workflow cancel {0})"
    )]
    StillRuns(String),
    #[error("a deletion cannot be undone: confirm with --yes")]
    NotConfirmed,
    #[error("{}: {why}", path.display())]
    NoHistoryFile { path: PathBuf, why: String },
    #[error(
        "there is no database at {0}: name the one that your program uses, or create one with \
         windlass migrate"
    )]
    NoDatabase(String),
    #[error("{} found", counted(*.0, "problem"))]
    Unhealthy(u64),
    #[error("{store} {}, and format {to} is needed: run windlass migrate", has(*from))]
    Behind { store: String, from: Option<i64>, to: i64 },
    #[error("the payload cannot be read from {}: {error}", path.display())]
    PayloadFile { path: PathBuf, error: std::io::Error },
    #[error("{} not replayed", were(*rejected))]
    NotReplayed { rejected: u64, not_there: bool },
    #[error("{} not deleted", counted(*.0, "workflow"))]
    NotDeleted(u64),
    #[error("{what} {name} has not ended within {waited}")]
    TimedOut { what: &'static str, name: String, waited: String },
    #[error(
        "the log does not reach back to {requested}, or has another incarnation; continue with \
         --after {oldest}, accepting a gap, or without --after"
    )]
    CursorExpired { requested: String, oldest: String },
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(std::io::Error),
    #[error("there is no program {0} that can be run")]
    NoProgram(String),
    #[error("{program} could not be started: {why}; its tasks are snoozed")]
    NotStarted { program: String, why: String },
    #[error("stopped at once; running tasks become ready again when their leases expire")]
    Interrupted,
    #[error("{what}: {error}")]
    System { what: &'static str, error: std::io::Error },
}

/// The options of fields with another name.
const OPTIONS: &[(&str, &str)] = &[
    ("tenant", "--tenant"),
    ("reason", "--reason"),
    ("max_attempts", "--attempts"),
    ("backoff_ms", "--backoff"),
    ("attempt_timeout_ms", "--attempt-timeout"),
    ("deadline_ms", "--deadline"),
    ("delay_ms", "--delay"),
    ("lease_ms", "--lease"),
    ("content_type", "--content-type"),
    ("idempotency_key", "--idempotency-key"),
    ("label_name", "the name of a --label"),
    ("label_value", "the value of a --label"),
    ("labels", "the number of --label"),
    ("tag", "--tag"),
    ("worker", "--name"),
    ("ttl_ms", "--ttl"),
];

/// A problem, with durations as people write them.
fn problem_text(field: &str, problem: Problem) -> String {
    match problem {
        Problem::OutOfRange { min, max } if field.ends_with("_ms") => {
            let time = |ms: i64| brief(ms.unsigned_abs());
            format!("is outside {} to {}", time(min), time(max))
        }
        other => other.to_string(),
    }
}

fn has(format: Option<i64>) -> String {
    format.map_or("has no tables".to_owned(), |format| format!("has format {format}"))
}

fn were(count: u64) -> String {
    format!("{} {}", counted(count, "task"), if count == 1 { "was" } else { "were" })
}

fn option(options: &[(&str, &'static str)], field: &str) -> Option<&'static str> {
    options.iter().find(|(of, _)| *of == field).map(|(_, name)| *name)
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        match error {
            Error::Rejected(Rejection::Invalid { field, problem }) => {
                let name = option(OPTIONS, field).unwrap_or(field);
                CliError::Invalid { name, field, problem }
            }
            other => CliError::Engine(other),
        }
    }
}

impl CliError {
    /// Adds the name of the task or lane to a not-found rejection.
    pub(crate) fn for_object(what: &'static str, name: impl ToString, error: Error) -> Self {
        match error {
            Error::Rejected(Rejection::TaskNotFound | Rejection::LaneNotFound) => {
                CliError::NotFound { what, name: name.to_string() }
            }
            other => CliError::from(other),
        }
    }

    /// Replaces the option name, for commands with their own options for some fields.
    pub(crate) fn named(self, options: &[(&str, &'static str)]) -> Self {
        match self {
            CliError::Invalid { name, field, problem } => {
                let name = option(options, field).unwrap_or(name);
                CliError::Invalid { name, field, problem }
            }
            other => other,
        }
    }

    /// A cursor that the log cannot continue from, with the oldest one that it can.
    pub(crate) fn expired(requested: Option<&Cursor>, error: Error) -> Self {
        match (requested, error) {
            (Some(requested), Error::CursorExpired(expired)) => {
                let written = |cursor: &Cursor| format!("{}:{}", cursor.incarnation, cursor.seq);
                let (requested, oldest) = (written(requested), written(&expired.oldest));
                CliError::CursorExpired { requested, oldest }
            }
            (_, other) => CliError::from(other),
        }
    }

    /// The stable name of this error, for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            CliError::Open(error) => error.code(),
            CliError::Engine(error) => error.code(),
            CliError::Store(error) => error.code(),
            CliError::Invalid { .. } => "invalid",
            CliError::LabelTwice(_) | CliError::OneInput(..) => "usage",
            CliError::Bench(_) => "bench",
            CliError::Demo(error) => error.code(),
            CliError::NotFound { what: "lane", .. } => Rejection::LaneNotFound.code(),
            CliError::NotFound { what: "execution", .. } => "execution_not_found",
            CliError::NotFound { .. } => Rejection::TaskNotFound.code(),
            CliError::NotAWorkflow(_) => Rejection::NotAWorkflow.code(),
            CliError::StillRuns(_) => Rejection::NotTerminal.code(),
            CliError::NotConfirmed => "not_confirmed",
            CliError::NoHistoryFile { .. } => "history_file",
            CliError::NoDatabase(_) => "no_database",
            CliError::Unhealthy(_) => "unhealthy",
            CliError::Behind { .. } => "not_migrated",
            CliError::PayloadFile { .. } => "payload_file",
            CliError::NotReplayed { .. } => "not_replayed",
            CliError::NotDeleted(_) => "not_deleted",
            CliError::TimedOut { .. } => "timed_out",
            CliError::CursorExpired { .. } => "cursor_expired",
            CliError::Signal(_) => "signal",
            CliError::NoProgram(_) => "no_program",
            CliError::NotStarted { .. } => "not_started",
            CliError::Interrupted => "interrupted",
            CliError::System { .. } => "system",
        }
    }

    /// 1 on an error, 3 when the engine rejects the command, 4 when something is not found, 130
    /// when interrupted by a signal. Wrong arguments are 2, also when only the engine finds them.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            CliError::Invalid { .. }
            | CliError::LabelTwice(_)
            | CliError::OneInput(..)
            | CliError::NotConfirmed => 2,
            CliError::NotFound { .. }
            | CliError::NoDatabase(_)
            | CliError::NoProgram(_)
            | CliError::NotReplayed { not_there: true, .. } => 4,
            CliError::Interrupted | CliError::Demo(DemoError::Interrupted) => 130,
            CliError::Engine(Error::Rejected(_) | Error::NotCompleted { .. })
            | CliError::NotAWorkflow(_)
            | CliError::StillRuns(_)
            | CliError::NotReplayed { .. }
            | CliError::NotDeleted(_)
            | CliError::Behind { .. } => 3,
            _ => 1,
        })
    }
}
