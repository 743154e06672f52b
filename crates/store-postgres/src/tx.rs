use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::time::timeout;
use windlass_core::{ChangeSet, Loaded, Timestamp, Wanted};
use windlass_store::{Lowest, Notice, StoreError, Ticket, Tx, Word};

use crate::error::{Oddity, is_answer, translate, unavailable};
use crate::flight::{Param, Request, Session};
use crate::listen::LONGEST_WORD;
use crate::load::load;
use crate::save::{self, Seal};
use crate::store::Shared;

/// The transaction of one batch, on a connection of its own.
pub(crate) struct PostgresTx {
    shared: Arc<Shared>,
    /// None once it has ended.
    session: Option<Session>,
    now: Timestamp,
    /// Under which Postgres knows it, with the time of the batch.
    ticket: Ticket,
    /// The time of the last deletion when it began.
    deletion: i64,
    /// Whether it may hold locks on what it looked at.
    locks: bool,
    /// Whether it has waited for records that many change. It does so once, in the order of their
    /// keys: who waits a second time may be waited for.
    waited: bool,
    /// Where it looked for something to take, and where it puts something.
    lowest: Lowest,
}

impl PostgresTx {
    /// One flight: begin, be impatient, learn the time and the name of the transaction.
    pub(crate) async fn begin(shared: Arc<Shared>) -> Result<Self, StoreError> {
        // What this handle has let go of must be free before it looks again.
        let mut ending = shared.ending.subscribe();
        ending.wait_for(|ending| *ending == 0).await.map_err(unavailable)?;
        let session = shared.session().await?;
        let (now, session) = (Timestamp::default(), Some(session));
        let (ticket, lowest) = (Ticket::default(), Lowest::default());
        let mut tx =
            Self { shared, session, now, ticket, deletion: 0, locks: false, waited: false, lowest };
        let start = Request::plain(tx.shared.sql().written("start"));
        let mut requests = vec![Request::plain("BEGIN"), tx.shared.settings(), start];
        if tx.session()?.is_due_for_plans() {
            requests.insert(1, Request::plain("DISCARD PLANS"));
        }
        let answers =
            tx.shared.options.in_time(tx.session()?.all(&requests)).await?.map_err(translate)?;
        let row = answers.last().and_then(|rows| rows.first());
        let row = row.ok_or_else(|| unavailable(Oddity::Ended))?;
        let read = |at: usize| row.try_get::<_, i64>(at).map_err(translate);
        let (xid, at, clock) = (read(0)?, read(1)?, read(2)?);
        tx.deletion = read(3)?;
        tx.now = tx.shared.time(Timestamp::from_micros(at), Timestamp::from_micros(clock));
        tx.ticket = Ticket { number: xid.cast_unsigned(), life: read(4)?, at: tx.now };
        Ok(tx)
    }

    fn session(&self) -> Result<&Session, StoreError> {
        self.session.as_ref().ok_or_else(|| unavailable(Oddity::Ended))
    }

    async fn fly(&mut self, requests: &[Request<'_>]) -> Result<(), StoreError> {
        let Ok(flown) = self.shared.options.in_time(self.session()?.fly(requests)).await else {
            return Err(StoreError::OutcomeUnknown(self.ticket.clone()));
        };
        let flown = flown.map_err(translate)?;
        // One that ended badly lets go of what others passed over: its end tells them.
        if flown.iter().all(Result::is_ok) {
            self.session = None;
        }
        match flown.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) if is_answer(&error) => Err(translate(error)),
            Some(_) => Err(StoreError::OutcomeUnknown(self.ticket.clone())),
        }
    }
}

#[async_trait]
impl Tx for PostgresTx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn hurry(&mut self, patience: std::time::Duration) -> Result<(), StoreError> {
        let ms = patience.as_millis().max(1).to_string();
        let soon = [Request::new(self.shared.sql().written("hurry"), vec![Param::Text(&ms)])];
        self.shared.options.in_time(self.session()?.all(&soon)).await?.map(drop).map_err(translate)
    }

    async fn load(&mut self, wanted: Arc<Wanted>) -> Result<Loaded, StoreError> {
        self.locks |= wanted.scans.iter().any(|scan| scan.range.index.is_taken_from());
        let (sql, starts, waits) = (self.shared.sql(), &self.shared.starts, !self.waited);
        self.waited |= wanted.rows.iter().any(|key| key.table.spec().contended.is_some());
        let loaded = load(self.session()?, sql, starts, &wanted, waits);
        let loaded = self.shared.options.in_time(loaded).await?.map_err(translate)?;
        self.lowest.note_pages(&wanted, &loaded);
        Ok(loaded)
    }

    async fn commit(mut self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let at = self.now.max(changes.now);
        // The events of a batch prove its commit by their time.
        self.ticket.at = changes.events.first().map_or(at, |event| event.at);
        let bodies: Vec<String> = changes.events.iter().map(|event| event.body()).collect();
        let shared = self.shared.clone();
        self.lowest.note_changes(&changes);
        let (origin, lowest) = (shared.origin.clone(), std::mem::take(&mut self.lowest));
        let word = Word { origin, at, lowest, notice: Notice::with_left(&changes) };
        let seal = Seal {
            log_lock: shared.found.log_lock,
            deletion: self.deletion,
            at,
            channel: &shared.channel,
            word: &word.written(LONGEST_WORD),
            bodies: &bodies,
            follows: self.now.max(changes.at).micros().saturating_add(shared.options.most_behind()),
        };
        let requests = save::commit(shared.sql(), &changes, &seal);
        let flown = self.fly(&requests).await;
        // Whoever looked before could not see it yet, and must not have the last word.
        shared.starts.lower(&word.lowest);
        flown?;
        if !changes.is_empty() {
            shared.commits.fetch_add(1, Ordering::Relaxed);
            shared.heard(at);
        }
        Ok(())
    }
}

impl Drop for PostgresTx {
    /// A transaction that did not end by itself is rolled back in the background. Where that is
    /// not possible its connection is closed, which does the same.
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return drop(deadpool_postgres::Object::take(session.client));
        };
        let shared = self.shared.clone();
        shared.ending.send_modify(|ending| *ending += 1);
        // What it had locked, others may have passed over, of this handle as well: nobody's word.
        let word = Word::of_anything().written(LONGEST_WORD);
        let tell = self.locks.then(|| format!("; NOTIFY \"{}\", '{word}'", shared.channel));
        runtime.spawn(async move {
            let end = format!("ROLLBACK{}", tell.unwrap_or_default());
            // A connection that does not answer must not hold up the batches to come.
            let ended = session.client.batch_execute(&end);
            if !matches!(timeout(shared.options.patience, ended).await, Ok(Ok(()))) {
                drop(deadpool_postgres::Object::take(session.client));
            }
            shared.starts.forget();
            shared.ending.send_modify(|ending| *ending -= 1);
        });
    }
}
