//! What a victim says, one line each, in the order in which it happens.
//!
//! What the parent has read of an answer was acknowledged; what was asked may have happened.

use serde::{Deserialize, Serialize};
use windlass_core::Settled;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The engine runs.
    Ready,
    /// The step to be killed at is reached.
    At {
        step: String,
    },
    AskedCreate(Wish),
    Created {
        wish: Wish,
        kept: String,
        duplicate: bool,
    },
    /// Said before the attempt does anything.
    Began {
        id: String,
        epoch: u64,
        attempt: u32,
    },
    AskedSettle(Act),
    /// A worker does not pass the answer on.
    Settled {
        act: Act,
        answer: Option<Settled>,
    },
    Refused {
        act: Act,
        code: String,
    },
    /// Everything was closed in good order.
    Closed,
    /// Something that never happens to a caller happened.
    Trouble(String),
}

/// A task to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wish {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) lane: String,
    pub(crate) plan: Plan,
    pub(crate) max_attempts: u32,
}

/// What becomes of a task if nothing goes wrong. It travels as the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Plan {
    Complete,
    /// Longer than a lease without renewals.
    CompleteSlowly,
    CompleteSecond,
    /// Given back once, where a caller claims by hand.
    ReleaseFirst,
    FailAlways,
    GiveUp,
    /// Settled only after the lease has run out, where a caller claims by hand.
    Stall,
}

/// A settle under a fence. Its result or reason is its [`Act::mark`], which no other act has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Act {
    pub(crate) id: String,
    pub(crate) epoch: u64,
    pub(crate) how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Complete,
    Fail,
    GiveUp,
    Release,
}

impl Act {
    pub(crate) fn mark(&self) -> String {
        format!("{}/{}", self.id, self.epoch)
    }

    /// Whether it ends its task: asking for it again gets the same answer for ever.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.how, How::Complete | How::GiveUp)
    }
}
