//! What a teller is asked and what it says, one line of JSON each.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    Ask(Ask),
    /// Lets the handlers go on that hold.
    Go,
}

/// A payment. Its key is also the name of its order, and of the lane of its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) by: By,
    pub(crate) key: String,
    pub(crate) cents: u64,
    /// How many identical calls are made at once.
    pub(crate) times: usize,
    /// Whether the handler waits for a word before it calls the bank.
    pub(crate) holds: bool,
}

/// On whose behalf the bank is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum By {
    Request,
    Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    Ready,
    Begun { key: String },
    Told { key: String, answer: String, replayed: bool },
    Refused { key: String, code: String },
}
