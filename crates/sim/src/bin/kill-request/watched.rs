//! A store that reports its commits. A commit is named by the records it writes, and has a point
//! before it (decided, not committed) and after it (committed, not answered).

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, StoredRow, Table, Timestamp,
    Value,
};
use windlass_store::{
    CommitId, Count, Notifications, Query, Store, StoreDescription, StoreError, Tx,
};

use crate::stage::Stage;

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stage: Arc<Stage>,
}

/// The steps of a payment that a commit makes.
fn steps(changes: &ChangeSet) -> Vec<&'static str> {
    let inserts = |table| changes.inserts.iter().any(|row| row.key.table == table);
    let updates = |table| changes.updates.iter().any(|update| update.row.key.table == table);
    let stores = |slot| changes.payloads.iter().any(|(key, _)| key.slot.as_str() == slot);
    // A key that was in flight for too long is reserved by an update.
    let reserves = inserts(Table::Admission) || updates(Table::Admission);
    let steps = [
        ("create", inserts(Table::Task)),
        ("reserve", reserves && !stores("response")),
        ("claim", inserts(Table::Effect)),
        ("keep", stores("effect")),
        ("answer", stores("response")),
        ("complete", stores("result")),
    ];
    steps.into_iter().filter(|(_, is_done)| *is_done).map(|(step, _)| step).collect()
}

#[async_trait]
impl Store for Watched {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        let tx = self.store.begin().await?;
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
        self.tx.load(wanted).await
    }

    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let Self { tx, stage } = *self;
        let steps = steps(&changes);
        for step in &steps {
            stage.reach(&format!("{step}.before"));
        }
        tx.commit(changes).await?;
        for step in &steps {
            stage.reach(&format!("{step}.after"));
        }
        Ok(())
    }
}
