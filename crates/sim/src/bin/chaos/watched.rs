//! The store as the engine sees it; outcome lookups are journaled.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{LogEvent, Payload, PayloadKey, StoredRow, Value};
use windlass_store::{
    CommitId, Count, Notifications, Query, Store, StoreDescription, StoreError, Tx,
};
use windlass_store_postgres::PostgresStore;

use crate::line::Line;
use crate::process_log::ProcessLog;

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) store: PostgresStore,
    pub(crate) log: Arc<ProcessLog>,
}

#[async_trait]
impl Store for Watched {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        self.store.begin().await
    }

    async fn outcome(&self, commit: &CommitId) -> Result<bool, StoreError> {
        let outcome = self.store.outcome(commit).await;
        self.log.write(&Line::LookedUp { committed: outcome.as_ref().ok().copied() });
        outcome
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        self.store.query(query).await
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        self.store.count(count).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        self.store.payloads(keys).await
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        self.store.events(after, limit).await
    }

    fn notifications(&self) -> Notifications {
        self.store.notifications()
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        self.store.describe().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
