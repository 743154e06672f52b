use std::sync::Arc;

use thiserror::Error;
use windlass_core::{Cursor, CursorExpired, PayloadKey, PublicState, Rejection, Slot, TaskId};
use windlass_store::StoreError;

/// Why a call failed or was rejected.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// Rejected by the engine's rules. Nothing was changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The command queue is full. Nothing was changed: retry with backoff.
    #[error("the engine's command queue is full: retry later")]
    Overloaded,
    /// The call exceeds the queue limits. Nothing was changed, and a retry cannot succeed.
    #[error("this call exceeds the limits of the command queue: split it")]
    TooLarge,
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// The commit may have succeeded; the store cannot determine it. A retry is safe: a settle
    /// returns its first result, a create returns a duplicate. Tasks that were claimed stay leased
    /// until their leases expire.
    #[error("the outcome of the commit is unknown; a retry is safe")]
    OutcomeUnknown,
    #[error(transparent)]
    CursorExpired(#[from] CursorExpired),
    /// A subscription has ended. A later one continues from this cursor without a gap.
    #[error("the subscription ended, and can continue from {}: {cause}", cursor.seq)]
    Disconnected { cursor: Cursor, cause: Box<Error> },
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// A payload could not be serialized, or a result could not be deserialized.
    #[error("cannot encode or decode a payload: {0}")]
    Payload(Arc<serde_json::Error>),
    /// A result was requested of a task that ended without one.
    #[error("task {id} has ended as {state}: {reason}")]
    NotCompleted { id: TaskId, state: PublicState, reason: String },
    /// A history row is missing, so the workflow cannot be replayed.
    #[error("row {turn} of the history is missing")]
    HistoryMissing { turn: u32 },
    #[error("row {turn} of the history cannot be read: {error}")]
    HistoryUnreadable { turn: u32, error: Arc<serde_json::Error> },
    /// The message stays in the mailbox and blocks its task.
    #[error("message {seq} of the mailbox cannot be read")]
    MessageUnreadable { seq: u64 },
    /// A payload that a record refers to is missing from the store. It is an error, not an empty
    /// payload.
    #[error("payload {} of {task} is missing", slot.as_str())]
    PayloadMissing { task: TaskId, slot: Slot },
    /// A transition panicked or did not converge. Nothing was changed.
    #[error("deciding {command} failed: this is a bug, please report it")]
    Bug { command: &'static str },
}

impl Error {
    pub(crate) fn payload(error: serde_json::Error) -> Self {
        Error::Payload(Arc::new(error))
    }

    pub(crate) fn payload_missing(key: PayloadKey) -> Self {
        Error::PayloadMissing { task: key.task, slot: key.slot }
    }

    /// Whether a retry of the same call may succeed: the engine is overloaded, the store is
    /// temporarily unavailable, or the outcome is unknown. A change that the store rejected, and a
    /// store that is damaged, incompatible or closed, are not retryable.
    pub fn is_retryable(&self) -> bool {
        use StoreError::{Conflict, Full, OutcomeUnknown, Unavailable};
        match self {
            Error::Overloaded | Error::OutcomeUnknown => true,
            Error::Store(error) => {
                matches!(**error, Unavailable(_) | Full | Conflict | OutcomeUnknown(_))
            }
            _ => false,
        }
    }

    /// The stable code of this error, for programs.
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
            Error::Payload(_) => "payload_encoding",
            Error::NotCompleted { .. } => "not_completed",
            Error::HistoryMissing { .. } => "history_missing",
            Error::HistoryUnreadable { .. } => "history_unreadable",
            Error::MessageUnreadable { .. } => "message_unreadable",
            Error::PayloadMissing { .. } => "payload_missing",
            Error::Bug { .. } => "bug",
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::Store(Arc::new(error))
    }
}
