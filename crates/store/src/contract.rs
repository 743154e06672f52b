use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{
    ChangeSet, Loaded, Logged, Payload, PayloadKey, RowKey, StoredRow, Table, Timestamp, Value,
    Wanted,
};

use crate::error::{StoreError, Ticket};
use crate::notice::Notices;
use crate::traffic::Traffic;

/// A place where records are kept.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Starts the transaction of one batch.
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError>;

    /// Whether a commit whose answer was lost took effect. It stays so from this answer on.
    async fn outcome(&self, ticket: &Ticket) -> Result<bool, StoreError>;

    /// Lists for people. They decide nothing.
    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError>;

    /// How many rows of a table there are of each kind, for people. In the order of the kinds.
    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError>;

    /// Payloads in the order of their keys; none where there is none.
    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError>;

    /// The first `limit` log entries behind `after`, in the order of their commits.
    async fn events(&self, after: u64, limit: usize) -> Result<Vec<Logged>, StoreError>;

    /// What changes without this handle's doing. Hints only: one may get lost.
    fn notices(&self) -> Notices;

    async fn describe(&self) -> Result<Description, StoreError>;

    /// Finishes what is under way and lets go of everything.
    async fn close(&self) -> Result<(), StoreError>;
}

/// The transaction of one batch. Dropped without a commit, it leaves no trace.
#[async_trait]
pub trait Tx: Send {
    /// The time of this batch: later than that of every batch committed before it began.
    fn now(&self) -> Timestamp;

    /// A hint: rather conflict than wait for longer than this for somebody who holds a record.
    /// Where nobody is waited for there is nothing to do.
    async fn hurry(&mut self, patience: Duration) -> Result<(), StoreError> {
        let _ = patience;
        Ok(())
    }

    async fn load(&mut self, wanted: Arc<Wanted>) -> Result<Loaded, StoreError>;

    /// Makes the changes durable, all or none, if everything that was read is still as it was;
    /// otherwise [`StoreError::Conflict`]. With nothing to write it only checks.
    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError>;
}

/// A page of a table in the order of its keys.
#[derive(Clone, Debug)]
pub struct Query {
    pub table: Table,
    /// The first columns of the key.
    pub prefix: Vec<Value>,
    /// Columns and what they must be.
    pub filter: Vec<(&'static str, Value)>,
    /// The key of the last row of the page before.
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

/// Rows of a table, told apart by some columns.
#[derive(Clone, Debug)]
pub struct Count {
    pub table: Table,
    /// The first columns of the key.
    pub prefix: Vec<Value>,
    /// A column that must not be null.
    pub present: Option<&'static str>,
    pub by: Vec<&'static str>,
}

/// What a store says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub backend: &'static str,
    /// The highest format that this program knows of such a store.
    pub format: i64,
    /// How durable an answer is, as read back from the database.
    pub durability: String,
    /// Names the life of the log. It is renewed when the log may have lost its end, by whoever
    /// restores a backup.
    pub incarnation: String,
    /// The last number that the log has given.
    pub last_seq: u64,
    /// Commits that wrote something since this handle was opened.
    pub commits: u64,
    /// What this handle sent to its server; none where there is no server that nodes share.
    pub traffic: Option<Traffic>,
}
