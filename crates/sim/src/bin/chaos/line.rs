//! The lines of a process log: what a process is about to submit, and every answer that it
//! received.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Created {
        nth: u64,
        id: String,
        duplicate: bool,
    },
    Claimed {
        run: Run,
        attempt: u32,
        worker: String,
    },
    SettleRequested {
        run: Run,
        how: How,
    },
    Settled {
        run: Run,
        how: How,
    },
    /// `unsure` when an earlier submission had no answer: it may have been committed.
    Rejected {
        run: Run,
        how: How,
        code: String,
        unsure: bool,
    },
    /// The lease expired before an answer, or before anything was submitted.
    Over {
        run: Run,
    },
    /// The lease was lost while the handler ran, and nothing was submitted.
    Lost {
        run: Run,
        code: String,
    },
    /// The outcome lookup of a commit without an answer; none when the lookup failed.
    LookedUp {
        committed: Option<bool>,
    },
    /// A caller received `OutcomeUnknown`.
    Unknown,
    /// The statistics of the engine in this life.
    Worked {
        batches: u64,
        conflicts: u64,
        sweeps: u64,
    },
    /// Everything was closed in order.
    Closed,
    /// An unexpected event.
    Unexpected(String),
}

/// A task under one lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Complete,
    Fail,
    Release,
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.id, self.epoch)
    }
}
