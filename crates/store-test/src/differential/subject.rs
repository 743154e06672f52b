use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{ChangeSet, Hints, PayloadKey};
use windlass_store::{ManualClock, Notification, Notifications, Store, StoreError};

use super::oracle::Expected;
use super::step::{Operation, Step};
use crate::factory::Factory;
use crate::fixture::inserts;
use crate::runner::{Batch, Order, execute_batch};
use crate::snapshot::Snapshot;

/// A store under test, through two handles.
pub(super) struct Subject {
    handles: [Arc<dyn Store>; 2],
    /// Notifications of each handle, if they travel through a server: until they arrive, a handle
    /// may scan from an outdated position.
    notifications: Option<[Notifications; 2]>,
    hints: Hints,
}

/// Timeout for a notification. Consequences of a lost one appear in the comparison.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a commit is awaited after a notification that may be of a rollback before it.
const AFTER_ROLLBACK: Duration = Duration::from_millis(300);

impl Subject {
    pub(super) async fn open(factory: &dyn Factory, place: &str, clock: &Arc<ManualClock>) -> Self {
        let first = factory.open(place, clock.clone()).await;
        let second = factory.open(place, clock.clone()).await;
        let has_server = first.describe().await.is_ok_and(|found| found.round_trips.is_some());
        let notifications = has_server.then(|| [first.notifications(), second.notifications()]);
        Self { handles: [first, second], notifications, hints: Hints::default() }
    }

    /// Takes a step; fails with a description of any difference.
    pub(super) async fn take(
        &mut self,
        step: &Step,
        expected: &Expected,
        payloads: &BTreeSet<PayloadKey>,
    ) -> Result<(), String> {
        let failed = |error: StoreError| format!("the store failed: {error}");
        let batch = self.act(step).await.map_err(failed)?;
        let has_changes = !batch.changes.is_empty();
        if let Some(notifications) = self.notifications.as_mut().filter(|_| has_changes) {
            await_commit(&mut notifications[1 - step.handle]).await;
        }
        let reader = &self.handles[1 - step.handle];
        let snapshot = Snapshot::with_payloads(&**reader, payloads).await.map_err(failed)?;
        same("time", &batch.now, &expected.batch.now)?;
        same("answers", &batch.answers, &expected.batch.answers)?;
        match snapshot.difference(&expected.snapshot) {
            Some(difference) => Err(difference),
            None => same("change set", &net(&batch.changes), &net(&expected.batch.changes)),
        }
    }

    async fn act(&mut self, step: &Step) -> Result<Batch, StoreError> {
        let store = &*self.handles[step.handle];
        match &step.command {
            Operation::Plant(row) => {
                let tx = store.begin().await?;
                let (now, hints) = (tx.now(), Hints::default());
                let changes = ChangeSet { commit_time: now, ..inserts([row.clone()]) };
                tx.commit(Arc::new(changes.clone())).await?;
                Ok(Batch { now, answers: Vec::new(), changes, hints })
            }
            Operation::Batch { commands, order } => {
                // Hints do not change results, so the oracle uses none. They may change which
                // command is decided first, which matters only in free order.
                let hints = match order {
                    Order::Strict => self.hints.clone(),
                    Order::Free => Hints::default(),
                };
                let batch = execute_batch(store, commands, *order, &hints).await?;
                self.hints = batch.hints.clone();
                Ok(batch)
            }
        }
    }
}

/// Waits for the notification of a commit. A rollback sends [`Notification::Anything`], and so does
/// a commit that is too large to be described.
async fn await_commit(notifications: &mut Notifications) {
    let mut timeout = NOTIFICATION_TIMEOUT;
    while let Ok(Some(Notification::Anything)) =
        tokio::time::timeout(timeout, notifications.next()).await
    {
        timeout = AFTER_ROLLBACK;
    }
}

fn same<T: PartialEq + fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}"))
}

/// Without the field that depends on how many rows were scanned.
fn net(changes: &ChangeSet) -> ChangeSet {
    ChangeSet { left_ready: Default::default(), ..changes.clone() }
}
