use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::time::timeout;
use windlass_core::{ChangeSet, LoadRequest, Loaded, Timestamp};
use windlass_store::{CommitId, CommitNotification, LowWatermarks, Notification, StoreError, Tx};

use crate::error::{DecodeError, is_answer, translate, unavailable};
use crate::listen::MAX_NOTIFICATION_BYTES;
use crate::load::load;
use crate::pipeline::{Param, Session, Statement};
use crate::save::{self, Seal};
use crate::store::Shared;

/// The transaction of one batch, on its own connection.
pub(crate) struct PostgresTx {
    shared: Arc<Shared>,
    /// None once the transaction has ended.
    session: Option<Session>,
    now: Timestamp,
    /// The transaction id in Postgres, and the time of the batch.
    id: CommitId,
    /// The number of the last deletion at the start of the transaction.
    last_deletion: i64,
    /// Whether it may hold locks on scanned rows.
    locks: bool,
    /// Whether it has waited for contended records. It waits once, in key order: waiting a second
    /// time could deadlock.
    waited: bool,
    /// The queue positions that it read or wrote.
    lowest: LowWatermarks,
}

impl PostgresTx {
    /// One round trip: begin, set timeouts, read the time and the transaction id.
    pub(crate) async fn begin(shared: Arc<Shared>) -> Result<Self, StoreError> {
        // Locks released by earlier transactions of this handle must be free before the next scan.
        let mut ending = shared.ending.subscribe();
        ending.wait_for(|ending| *ending == 0).await.map_err(unavailable)?;
        let session = shared.session().await?;
        let (now, session) = (Timestamp::default(), Some(session));
        let (id, lowest) = (CommitId::default(), LowWatermarks::default());
        let (last_deletion, locks, waited) = (0, false, false);
        let mut tx = Self { shared, session, now, id, last_deletion, locks, waited, lowest };
        let start = Statement::plain(tx.shared.sql().named("start"));
        let mut statements = vec![Statement::plain("BEGIN"), tx.shared.settings(), start];
        if tx.session()?.is_due_for_plans() {
            statements.insert(1, Statement::plain("DISCARD PLANS"));
        }
        let results =
            tx.shared.options.in_time(tx.session()?.all(&statements)).await?.map_err(translate)?;
        let row = results.last().and_then(|rows| rows.first());
        let row = row.ok_or_else(|| unavailable(DecodeError::Ended))?;
        let read = |at: usize| row.try_get::<_, i64>(at).map_err(translate);
        let (xid, at, clock) = (read(0)?, read(1)?, read(2)?);
        tx.last_deletion = read(3)?;
        tx.now = tx.shared.time(Timestamp::from_micros(at), Timestamp::from_micros(clock));
        tx.id = CommitId { number: xid.cast_unsigned(), incarnation: read(4)?, at: tx.now };
        Ok(tx)
    }

    fn session(&self) -> Result<&Session, StoreError> {
        self.session.as_ref().ok_or_else(|| unavailable(DecodeError::Ended))
    }

    async fn send(&mut self, statements: &[Statement<'_>]) -> Result<(), StoreError> {
        let Ok(sent) = self.shared.options.in_time(self.session()?.send(statements)).await else {
            return Err(StoreError::OutcomeUnknown(self.id.clone()));
        };
        let results = sent.map_err(translate)?;
        // A failed transaction releases rows that others skipped: its rollback notifies them.
        if results.iter().all(Result::is_ok) {
            self.session = None;
        }
        match results.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) if is_answer(&error) => Err(translate(error)),
            Some(_) => Err(StoreError::OutcomeUnknown(self.id.clone())),
        }
    }
}

#[async_trait]
impl Tx for PostgresTx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn set_lock_timeout(&mut self, timeout: std::time::Duration) -> Result<(), StoreError> {
        let ms = timeout.as_millis().max(1).to_string();
        let soon =
            [Statement::new(self.shared.sql().named("set_lock_timeout"), vec![Param::Text(&ms)])];
        self.shared.options.in_time(self.session()?.all(&soon)).await?.map(drop).map_err(translate)
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError> {
        self.locks |= wanted.scans.iter().any(|scan| scan.range.index.is_consumed());
        let (sql, hints, waits) = (self.shared.sql(), &self.shared.hints, !self.waited);
        self.waited |= wanted.rows.iter().any(|key| key.table.spec().contended.is_some());
        let loaded = load(self.session()?, sql, hints, &wanted, waits);
        let loaded = self.shared.options.in_time(loaded).await?.map_err(translate)?;
        self.lowest.note_pages(&wanted, &loaded);
        Ok(loaded)
    }

    async fn commit(mut self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let at = self.now.max(changes.commit_time);
        // The time of a batch's events proves its commit.
        self.id.at = changes.events.first().map_or(at, |event| event.at);
        let bodies: Vec<String> = changes.events.iter().map(|event| event.body()).collect();
        let shared = self.shared.clone();
        self.lowest.note_changes(&changes);
        let (origin, lowest) = (shared.origin.clone(), std::mem::take(&mut self.lowest));
        let notification = Notification::with_left(&changes);
        let notification = CommitNotification { origin, at, lowest, notification };
        let seal = Seal {
            log_lock: shared.database.log_lock,
            last_deletion: self.last_deletion,
            at,
            channel: &shared.channel,
            notification: &notification.encode(MAX_NOTIFICATION_BYTES),
            bodies: &bodies,
            follows: self.now.max(changes.at).micros().saturating_add(shared.options.most_behind()),
        };
        let statements = save::commit(shared.sql(), &changes, &seal);
        let results = self.send(&statements).await;
        // Concurrent scans could not see these rows yet, so their hints must not win.
        shared.hints.lower(&notification.lowest);
        results?;
        if !changes.is_empty() {
            shared.commits.fetch_add(1, Ordering::Relaxed);
            shared.heard(at);
        }
        Ok(())
    }
}

impl Drop for PostgresTx {
    /// Rolls back a transaction that was not completed, in the background. If that is not possible,
    /// closes its connection, which has the same effect.
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return drop(deadpool_postgres::Object::take(session.client));
        };
        let shared = self.shared.clone();
        shared.ending.send_modify(|ending| *ending += 1);
        // Others may have skipped the locked rows, also in this handle, so the origin is anonymous.
        let notification = CommitNotification::of_anything().encode(MAX_NOTIFICATION_BYTES);
        let tell = self.locks.then(|| format!("; NOTIFY \"{}\", '{notification}'", shared.channel));
        runtime.spawn(async move {
            let end = format!("ROLLBACK{}", tell.unwrap_or_default());
            // A dead connection must not delay later batches.
            let ended = session.client.batch_execute(&end);
            if !matches!(timeout(shared.options.patience, ended).await, Ok(Ok(()))) {
                drop(deadpool_postgres::Object::take(session.client));
            }
            shared.hints.forget();
            shared.ending.send_modify(|ending| *ending -= 1);
        });
    }
}
