use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, RowKey, StoredRow, Table,
    Timestamp, Value,
};

use crate::error::{CommitId, StoreError};
use crate::notification::Notifications;
use crate::round_trip_stats::RoundTripStats;

/// A store of records.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Starts the transaction of one batch.
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError>;

    /// Whether a commit with a lost response took effect. The result is final.
    async fn outcome(&self, commit_id: &CommitId) -> Result<bool, StoreError>;

    /// A page of rows, for people. Not part of any optimistic check.
    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError>;

    /// The number of rows for each value of some columns, for people; ordered by these values.
    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError>;

    /// Payloads in the order of their keys; none for a missing one.
    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError>;

    /// The first `limit` log events after `after`, in commit order.
    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError>;

    /// Commits that were not made through this handle. Hints only: some may be lost.
    fn notifications(&self) -> Notifications;

    async fn describe(&self) -> Result<StoreDescription, StoreError>;

    /// Finishes pending work and releases all resources.
    async fn close(&self) -> Result<(), StoreError>;
}

/// The transaction of one batch. Dropping it without a commit rolls it back.
#[async_trait]
pub trait Tx: Send {
    /// The time of this batch: later than that of every batch committed before it began.
    fn now(&self) -> Timestamp;

    /// A lock wait limit, as a hint: conflict rather than wait longer for a row lock. A no-op for
    /// stores without row locks.
    async fn set_lock_timeout(&mut self, timeout: Duration) -> Result<(), StoreError> {
        let _ = timeout;
        Ok(())
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError>;

    /// Commits the changes atomically if everything that was read is unchanged; otherwise
    /// [`StoreError::Conflict`]. An empty change set is only checked.
    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError>;
}

/// A page of a table in key order.
#[derive(Clone, Debug)]
pub struct Query {
    pub table: Table,
    /// Values of the leading key columns.
    pub prefix: Vec<Value>,
    /// Columns and their required values.
    pub filter: Vec<(&'static str, Value)>,
    /// The key of the last row of the previous page.
    pub after: Option<Vec<Value>>,
    pub limit: usize,
}

impl Query {
    pub fn one(key: RowKey) -> Self {
        Self { prefix: key.values, ..Self::all(key.table, 1) }
    }

    pub fn all(table: Table, limit: usize) -> Self {
        Self { table, prefix: Vec::new(), filter: Vec::new(), after: None, limit }
    }
}

/// A count of rows, grouped by some columns.
#[derive(Clone, Debug)]
pub struct Count {
    pub table: Table,
    /// Values of the leading key columns.
    pub prefix: Vec<Value>,
    /// A column that must not be null.
    pub present: Option<&'static str>,
    pub by: Vec<&'static str>,
}

/// Properties and counters of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDescription {
    pub backend: &'static str,
    /// The highest store format this program supports.
    pub format: i64,
    /// The durability setting, as read back from the database.
    pub durability: String,
    /// The incarnation of the log. Renewed by an operator who restores a backup, because the log
    /// may have lost its end.
    pub incarnation: String,
    /// The last sequence number of the log.
    pub last_seq: u64,
    /// Commits with changes since this handle was opened.
    pub commits: u64,
    /// Traffic with the server; none for an embedded store, which nodes cannot share.
    pub round_trips: Option<RoundTripStats>,
}
