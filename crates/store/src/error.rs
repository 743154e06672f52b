use std::error::Error;
use std::path::PathBuf;

use thiserror::Error;
use windlass_core::Timestamp;

type Source = Box<dyn Error + Send + Sync>;

/// Identifies a commit whose outcome is to be looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitId {
    pub number: u64,
    /// Server incarnation, if numbers can be reused by another one; otherwise zero.
    pub incarnation: i64,
    /// The time of the batch.
    pub at: Timestamp,
}

impl CommitId {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }
}

/// Why a store operation failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A record that was read has changed: load and decide again.
    #[error("a concurrent commit changed records that this batch read")]
    Conflict,
    /// The commit may have taken effect: ask [`crate::Store::outcome`].
    #[error("the response to a commit was lost")]
    OutcomeUnknown(CommitId),
    /// This change set cannot be stored; others can.
    #[error("the store rejected the change: {0}")]
    Rejected(#[source] Source),
    /// The store is temporarily unavailable. Nothing was changed.
    #[error("the store does not answer: {0}")]
    Unavailable(#[source] Source),
    #[error("the disk is full: free some space; reads still work, writes resume automatically")]
    Full,
    #[error("{path} is damaged or not a Windlass database ({source}): restore it from a backup")]
    Corrupt { path: PathBuf, source: Source },
    #[error("the database has format {found}, this program reads up to {supported}: upgrade it")]
    Incompatible { found: i64, supported: i64 },
    #[error("the database has format {found} of an unreleased version: create a new database")]
    Unreleased { found: i64 },
    #[error("durability is {found}, but {wanted} was requested")]
    NotDurable { found: String, wanted: &'static str },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// The stable code of this error, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            StoreError::Conflict => "store_conflict",
            StoreError::OutcomeUnknown(_) => "outcome_unknown",
            StoreError::Rejected(_) => "store_rejected",
            StoreError::Unavailable(_) => "store_unavailable",
            StoreError::Full => "store_full",
            StoreError::Corrupt { .. } => "store_corrupt",
            StoreError::Incompatible { .. } | StoreError::Unreleased { .. } => "store_incompatible",
            StoreError::NotDurable { .. } => "store_not_durable",
            StoreError::Closed => "store_closed",
        }
    }
}
