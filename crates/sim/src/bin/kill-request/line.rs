//! The commands and the output of a process, one line of JSON each.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Instruction {
    Ask(Ask),
    /// Releases the held handlers.
    Go,
}

/// A payment. Its key is also the name of its order, and of the lane of its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) by: By,
    pub(crate) key: String,
    pub(crate) cents: u64,
    /// The number of identical concurrent calls.
    pub(crate) times: usize,
    /// Whether the handler waits for `Go` before it calls the bank.
    pub(crate) holds: bool,
}

/// The owner of the call to the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum By {
    Request,
    Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    Ready,
    Begun { key: String },
    Responded { key: String, answer: String, replayed: bool },
    Rejected { key: String, code: String },
}
