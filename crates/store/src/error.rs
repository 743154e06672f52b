use std::error::Error;
use std::path::PathBuf;

use thiserror::Error;
use windlass_core::Timestamp;

type Source = Box<dyn Error + Send + Sync>;

/// Names a commit, to ask later whether it took effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    pub number: u64,
    /// Numbers may be given again in another life of the server; zero where they are not.
    pub life: i64,
    /// The time of the batch.
    pub at: Timestamp,
}

impl Ticket {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }
}

/// What a store could not do.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Something that was read has changed: load and decide again.
    #[error("somebody else changed what this was decided on")]
    Conflict,
    /// The commit may or may not have taken effect: ask [`crate::Store::outcome`].
    #[error("the answer to a commit was lost")]
    OutcomeUnknown(Ticket),
    /// This change set cannot be stored; another one can.
    #[error("the store refused the change: {0}")]
    Refused(#[source] Source),
    /// Nothing can be stored or read at the moment. Nothing was changed.
    #[error("the store does not answer: {0}")]
    Unavailable(#[source] Source),
    #[error("the disk is full: free some space; reading goes on, writing resumes by itself")]
    Full,
    #[error("{path} is damaged or not a Windlass database ({source}): restore it from a backup")]
    Corrupt { path: PathBuf, source: Source },
    #[error("the database has format {found}, this program reads up to {supported}: upgrade it")]
    Incompatible { found: i64, supported: i64 },
    #[error("durability is {found} where {wanted} was asked for")]
    NotDurable { found: String, wanted: &'static str },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// The stable name of this error, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            StoreError::Conflict => "store_conflict",
            StoreError::OutcomeUnknown(_) => "outcome_unknown",
            StoreError::Refused(_) => "store_refused",
            StoreError::Unavailable(_) => "store_unavailable",
            StoreError::Full => "store_full",
            StoreError::Corrupt { .. } => "store_corrupt",
            StoreError::Incompatible { .. } => "store_incompatible",
            StoreError::NotDurable { .. } => "store_not_durable",
            StoreError::Closed => "store_closed",
        }
    }
}
