use std::process::ExitStatus;

use thiserror::Error;
use windlass::{Error, OpenError};

/// Why a demonstration did not come to its end, or not to a good one.
#[derive(Debug, Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] Error),
    #[error("{what}: {error}")]
    System { what: &'static str, error: std::io::Error },
    #[error("{worker} ended by itself: {status}")]
    WorkerEnded { worker: String, status: ExitStatus },
    #[error("nothing has ended for {seconds} s; {open} of {tasks} tasks have not")]
    TooSlow { seconds: u64, open: usize, tasks: usize },
    #[error("everything was done before a worker could be killed at its work")]
    NobodyAtWork,
    #[error("the stalled worker got no task to stall on")]
    NobodyStalled,
    #[error("{0} of the checks failed: this is a bug, please report it")]
    Unsound(usize),
    #[error("interrupted; nothing is left behind")]
    Interrupted,
    /// Whoever read the output has seen enough.
    #[error("nobody reads the output any more")]
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

/// Says what was tried when the system refused it.
pub(crate) fn while_doing(what: &'static str) -> impl Fn(std::io::Error) -> DemoError {
    move |error| DemoError::System { what, error }
}
