use std::sync::Arc;

use thiserror::Error;
use windlass_core::{Cursor, CursorExpired, PayloadKey, PublicState, Rejection, Slot, TaskId};
use windlass_store::StoreError;

/// Why a call has no answer, or a refusal for one.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// The rules say no. Nothing was changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Too much is waiting already. Nothing was changed: try again a little later.
    #[error("the engine has more to do than it may queue: try again a little later")]
    Overloaded,
    /// Nothing was changed, and trying again does not help.
    #[error("this call alone is more than the engine may queue: split it")]
    TooLarge,
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// It may or may not have taken effect, and the store cannot tell. Asking again is safe: what
    /// did take effect does so once. A settle is then answered as it was the first time, a create
    /// as a duplicate; tasks that were claimed are lost to the caller until their leases run out.
    #[error("the outcome of the commit could not be learned; asking again is safe")]
    OutcomeUnknown,
    #[error(transparent)]
    CursorExpired(#[from] CursorExpired),
    /// A subscription has ended. A later one goes on from this cursor without a gap.
    #[error("the subscription ended, and can go on from {}: {cause}", cursor.seq)]
    Disconnected { cursor: Cursor, cause: Box<Error> },
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// A payload could not be written, or a result not read as what it was asked for.
    #[error("a payload is not what it should be: {0}")]
    Payload(Arc<serde_json::Error>),
    /// A result was asked for that there will not be.
    #[error("task {id} has ended as {state}: {reason}")]
    NotCompleted { id: TaskId, state: PublicState, reason: String },
    /// A workflow cannot be replayed.
    #[error("row {turn} of the history is not there")]
    NoHistory { turn: u32 },
    #[error("row {turn} of the history cannot be read: {error}")]
    BadHistory { turn: u32, error: Arc<serde_json::Error> },
    /// It stays where it is, and its task goes no further.
    #[error("message {seq} of the mailbox cannot be read")]
    BadMessage { seq: u64 },
    /// What a task was made with, was sent, or is to hand over is not where its record says.
    /// Nothing is made of it: it is not the same as none.
    #[error("payload {} of {task} is not there", slot.as_str())]
    NoPayload { task: TaskId, slot: Slot },
    /// A transition panicked or never settled. Nothing was changed.
    #[error("deciding {command} failed: this is a bug, please report it")]
    Bug { command: &'static str },
}

impl Error {
    pub(crate) fn payload(error: serde_json::Error) -> Self {
        Error::Payload(Arc::new(error))
    }

    pub(crate) fn no_payload(key: PayloadKey) -> Self {
        Error::NoPayload { task: key.task, slot: key.slot }
    }

    /// The stable name of this error, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Rejected(rejection) => rejection.code(),
            Error::Overloaded => "overloaded",
            Error::TooLarge => "too_large",
            Error::ShuttingDown => "shutting_down",
            Error::OutcomeUnknown => "outcome_unknown",
            Error::CursorExpired(_) => "cursor_expired",
            Error::Disconnected { .. } => "disconnected",
            Error::Store(error) => error.code(),
            Error::Payload(_) => "payload",
            Error::NotCompleted { .. } => "not_completed",
            Error::NoHistory { .. } => "no_history",
            Error::BadHistory { .. } => "bad_history",
            Error::BadMessage { .. } => "bad_message",
            Error::NoPayload { .. } => "no_payload",
            Error::Bug { .. } => "bug",
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::Store(Arc::new(error))
    }
}
