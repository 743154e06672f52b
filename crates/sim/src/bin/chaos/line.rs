//! What a process writes down, one line each, before it goes on: what it is about to ask, and
//! every answer that it got.

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
    Asked {
        run: Run,
        how: How,
    },
    Settled {
        run: Run,
        how: How,
    },
    /// `unsure` when the same was asked before without an answer: it may have been done then.
    Refused {
        run: Run,
        how: How,
        code: String,
        unsure: bool,
    },
    /// The lease was over before there was an answer, or anything to ask.
    Over {
        run: Run,
    },
    /// The lease was lost while the handler ran, and nothing was asked.
    Lost {
        run: Run,
        code: String,
    },
    /// What a look at a commit without an answer said; nothing when it said nothing.
    LookedUp {
        committed: Option<bool>,
    },
    /// A caller was told that the outcome is not known.
    Unknown,
    /// What the engine of this life did.
    Worked {
        batches: u64,
        conflicts: u64,
        sweeps: u64,
    },
    /// Everything was closed in good order.
    Closed,
    /// Something that never happens to a caller happened.
    Trouble(String),
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
