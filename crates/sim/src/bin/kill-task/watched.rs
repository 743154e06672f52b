//! The store as the engine sees it, with a step before and after each call: between them lie all
//! steps of the engine from an accepted command to its answer.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, StoredRow, Timestamp, Value,
};
use windlass_store::{
    CommitId, Count, Notifications, Query, Store, StoreDescription, StoreError, Tx,
};
use windlass_store_sqlite::SqliteStore;

use crate::stage::Stage;

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) store: SqliteStore,
    pub(crate) stage: Arc<Stage>,
}

#[async_trait]
impl Store for Watched {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        self.stage.reach("engine.accepted");
        let tx = self.store.begin().await?;
        self.stage.reach("engine.begun");
        Ok(Box::new(WatchedTx { tx, stage: self.stage.clone() }))
    }

    async fn outcome(&self, commit: &CommitId) -> Result<bool, StoreError> {
        self.store.outcome(commit).await
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        self.store.query(query).await
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        self.store.count(count).await
    }

    /// The input of a committed claim is read before the claim is answered.
    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        self.stage.reach("engine.claimed");
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
        self.stage.reach("engine.closing");
        self.store.close().await?;
        self.stage.reach("engine.closed");
        Ok(())
    }
}

struct WatchedTx {
    tx: Box<dyn Tx>,
    stage: Arc<Stage>,
}

#[async_trait]
impl Tx for WatchedTx {
    fn now(&self) -> Timestamp {
        self.tx.now()
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError> {
        let loaded = self.tx.load(wanted).await;
        self.stage.reach("engine.loaded");
        loaded
    }

    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let Self { tx, stage } = *self;
        if changes.is_empty() {
            return tx.commit(changes).await;
        }
        stage.reach("engine.decided");
        tx.commit(changes).await?;
        stage.reach("engine.committed");
        Ok(())
    }
}
