use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::time::timeout;
use windlass_core::{ChangeSet, Loaded, Timestamp, Wanted};
use windlass_store::{Notice, StoreError, Tx};

use crate::error::{Oddity, is_answer, translate, unavailable};
use crate::flight::{Param, Request, Session};
use crate::listen::word;
use crate::load::load;
use crate::save::{self, Notification};
use crate::store::Shared;

/// The transaction of one batch, on a connection of its own.
pub(crate) struct PostgresTx {
    shared: Arc<Shared>,
    /// None once it has ended.
    session: Option<Session>,
    now: Timestamp,
    /// Under which Postgres knows it.
    xid: u64,
    /// The time of the last deletion when it began.
    deletion: i64,
    /// The life of the server that it was begun in.
    life: i64,
    /// Whether it may hold locks on what it looked at.
    locks: bool,
}

impl PostgresTx {
    /// One flight: begin, be impatient, learn the time and the name of the transaction.
    pub(crate) async fn begin(shared: Arc<Shared>) -> Result<Self, StoreError> {
        // What this handle has let go of must be free before it looks again.
        let mut ending = shared.ending.subscribe();
        ending.wait_for(|ending| *ending == 0).await.map_err(unavailable)?;
        let session = shared.session().await?;
        let (now, session) = (Timestamp::default(), Some(session));
        let mut tx = Self { shared, session, now, xid: 0, deletion: 0, life: 0, locks: false };
        let session = tx.session()?;
        let patience = tx.shared.patience.as_str();
        let set = Request::new(tx.shared.set_up.as_str(), vec![Param::Text(patience)]);
        let begin = Request::new("BEGIN", Vec::new());
        let answers = tx.in_time(session.all(&[begin, set])).await?.map_err(translate)?;
        let row = answers.last().and_then(|rows| rows.first());
        let row = row.ok_or_else(|| unavailable(Oddity::Ended))?;
        let read = |at: usize| row.try_get::<_, i64>(at).map_err(translate);
        let (xid, at, clock) = (read(0)?, read(1)?, read(2)?);
        tx.xid = xid.cast_unsigned();
        (tx.deletion, tx.life) = (read(3)?, read(4)?);
        tx.now = tx.shared.time(Timestamp::from_micros(at), Timestamp::from_micros(clock));
        Ok(tx)
    }

    fn session(&self) -> Result<&Session, StoreError> {
        self.session.as_ref().ok_or_else(|| unavailable(Oddity::Ended))
    }

    /// A connection on which nothing comes is not waited for. It is closed with this transaction.
    async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, StoreError> {
        let answer = timeout(self.shared.options.silence(), answer).await;
        answer.map_err(|_| unavailable(Oddity::Silent))
    }

    async fn fly(&mut self, requests: &[Request<'_>]) -> Result<(), StoreError> {
        let Ok(flown) = self.in_time(self.session()?.fly(requests)).await else {
            return Err(self.shared.doubt(self.xid, self.life));
        };
        let flown = flown.map_err(translate)?;
        // A COMMIT that was answered has ended the transaction, whatever became of it.
        if flown.last().is_some_and(Result::is_ok) {
            self.session = None;
        }
        match flown.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) if is_answer(&error) => Err(translate(error)),
            Some(_) => Err(self.shared.doubt(self.xid, self.life)),
        }
    }
}

#[async_trait]
impl Tx for PostgresTx {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn load(&mut self, wanted: Arc<Wanted>) -> Result<Loaded, StoreError> {
        self.locks |= wanted.scans.iter().any(|scan| scan.range.index.is_taken_from());
        let loaded = load(self.session()?, &self.shared.sql, &wanted);
        self.in_time(loaded).await?.map_err(translate)
    }

    async fn commit(mut self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let at = self.now.max(changes.now);
        let bodies: Vec<String> = changes.events.iter().map(|event| event.change.body()).collect();
        let shared = self.shared.clone();
        let notification = Notification {
            lock: shared.log_lock,
            deletion: self.deletion,
            at,
            channel: shared.channel.clone(),
            word: word(&shared.origin, at, &Notice::with_left(&changes)),
        };
        let requests = save::commit(&shared.sql, &changes, &bodies, &notification);
        self.fly(&requests).await?;
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
        // What it had locked, others may have passed over.
        let word = word(&shared.origin, Timestamp::default(), &Notice::Anything);
        let tell = self.locks.then(|| format!("; NOTIFY \"{}\", '{word}'", shared.channel));
        runtime.spawn(async move {
            let end = format!("ROLLBACK{}", tell.unwrap_or_default());
            // A connection that does not answer must not hold up the batches to come.
            let ended = session.client.batch_execute(&end);
            if !matches!(timeout(shared.options.patience, ended).await, Ok(Ok(()))) {
                drop(deadpool_postgres::Object::take(session.client));
            }
            shared.ending.send_modify(|ending| *ending -= 1);
        });
    }
}
