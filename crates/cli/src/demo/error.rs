use std::process::ExitStatus;

use thiserror::Error;
use windlass::{Error, OpenError};

/// Why a demo failed.
#[derive(Debug, Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] Error),
    #[error("{what}: {error}")]
    System { what: &'static str, error: std::io::Error },
    #[error("{worker} exited unexpectedly: {status}")]
    WorkerEnded { worker: String, status: ExitStatus },
    #[error("no task has ended for {seconds} s; {open} of {tasks} are open")]
    TooSlow { seconds: u64, open: usize, tasks: usize },
    #[error("all tasks ended before a busy worker could be killed")]
    NoBusyWorker,
    #[error("the stalled worker got no task to stall on")]
    NoStalledWorker,
    #[error("{0} of the checks failed: this is a bug, please report it")]
    Unsound(usize),
    #[error("interrupted; nothing is left behind")]
    Interrupted,
    /// The reader of stdout closed it.
    #[error("stdout is closed")]
    Unread,
}

impl DemoError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            DemoError::Open(error) => error.code(),
            DemoError::Engine(error) => error.code(),
            DemoError::System { .. } => "system",
            DemoError::Interrupted => "interrupted",
            _ => "demo",
        }
    }
}

/// Adds the operation to a system error.
pub(crate) fn system_error(what: &'static str) -> impl Fn(std::io::Error) -> DemoError {
    move |error| DemoError::System { what, error }
}
