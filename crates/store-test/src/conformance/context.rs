use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use windlass_core::{
    ChangeSet, Command, LoadRequest, Loaded, Outcome, PayloadKey, RowKey, Scan, StoredRow,
    Timestamp,
};
use windlass_store::{ManualClock, Query, Store, StoreError};

use super::case::{Verdict, Wrong};
use crate::factory::Factory;
use crate::fixture::START;
use crate::runner::{CommandResult, execute};
use crate::snapshot::Snapshot;

/// The context of a case: an empty store, and its clock.
pub(super) struct Context<'f> {
    factory: &'f dyn Factory,
    place: &'static str,
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Arc<dyn Store>,
}

impl<'f> Context<'f> {
    pub(super) async fn open(factory: &'f dyn Factory, place: &'static str) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let store = factory.open(place, clock.clone()).await;
        Self { factory, place, clock, store }
    }

    /// Another handle on the same records.
    pub(super) async fn another(&self) -> Arc<dyn Store> {
        self.factory.open(self.place, self.clock.clone()).await
    }

    pub(super) async fn commit(&self, changes: ChangeSet) -> Result<(), StoreError> {
        commit(&*self.store, changes).await
    }

    pub(super) async fn load(&self, wanted: LoadRequest) -> Result<Loaded, StoreError> {
        let loaded = self.store.begin().await?.load(Arc::new(wanted)).await?;
        // Stores may leave this field empty.
        Ok(Loaded { as_of: Timestamp::default(), ..loaded })
    }

    pub(super) async fn scan(&self, scans: Vec<Scan>) -> Result<Loaded, StoreError> {
        self.load(LoadRequest { scans, ..LoadRequest::default() }).await
    }

    pub(super) async fn row(&self, key: &RowKey) -> Result<Option<StoredRow>, Wrong> {
        let mut rows = self.store.query(&Query::one(key.clone())).await?;
        let row = rows.pop();
        ensure(rows.is_empty(), || format!("several rows under {key:?}"))?;
        Ok(row)
    }

    pub(super) async fn run(
        &self,
        command: impl Into<Command>,
    ) -> Result<CommandResult, StoreError> {
        execute(&*self.store, &command.into()).await
    }

    /// Runs a command that must be accepted.
    pub(super) async fn must(&self, command: impl Into<Command>) -> Result<Outcome, Wrong> {
        let command = command.into();
        let answer = execute(&*self.store, &command).await?;
        answer.map_err(|rejection| Wrong(format!("{command:?} was rejected: {rejection}")))
    }

    /// Commits a change set that must conflict and change nothing.
    pub(super) async fn conflicts(&self, what: &str, changes: ChangeSet) -> Verdict {
        let keys = changes.payloads.iter().map(|(key, _)| key).chain(&changes.dropped_payloads);
        let keys: BTreeSet<PayloadKey> = keys.cloned().collect();
        let before = Snapshot::with_payloads(&*self.store, &keys).await?;
        let commits = self.store.describe().await?.commits;
        match self.commit(changes).await {
            Err(StoreError::Conflict) => {}
            other => return Err(Wrong(format!("{what}: {other:?} instead of a conflict"))),
        }
        let after = Snapshot::with_payloads(&*self.store, &keys).await?;
        match after.difference(&before) {
            None => same(what, &self.store.describe().await?.commits, &commits),
            Some(difference) => Err(Wrong(format!("{what}: it changed {difference}"))),
        }
    }
}

/// Commits a prepared change set in its own transaction.
pub(super) async fn commit(store: &dyn Store, mut changes: ChangeSet) -> Result<(), StoreError> {
    let tx = store.begin().await?;
    changes.commit_time = tx.now();
    tx.commit(Arc::new(changes)).await
}

pub(super) fn same<T: PartialEq + fmt::Debug>(what: &str, found: &T, expected: &T) -> Verdict {
    ensure(found == expected, || format!("{what}: found {found:?}, expected {expected:?}"))
}

pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Wrong(otherwise())) }
}
