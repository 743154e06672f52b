use std::sync::Arc;

use tokio::sync::watch;
use windlass_core::{Cursor, Log, LogEvent, read_row};
use windlass_store::{Query, Store};

use crate::error::Error;
use crate::event_stream::EventStream;
use crate::filter::EventFilter;

/// Marks the end; counting never reaches it.
const ENDED: u64 = u64::MAX;

/// Notifies log readers of commits.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    all: watch::Sender<u64>,
    remote: watch::Sender<u64>,
}

impl Commits {
    pub(crate) fn notify(&self) {
        self.all.send_modify(|count| *count = count.saturating_add(1));
    }

    /// Signals a commit of another node, or one of this engine whose outcome is unknown.
    pub(crate) fn notify_remote(&self) {
        self.notify();
        self.remote.send_modify(|count| *count = count.saturating_add(1));
    }

    /// Signals that the log has ended.
    pub(crate) fn end(&self) {
        self.all.send_modify(|count| *count = ENDED);
        self.remote.send_modify(|count| *count = ENDED);
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.all.borrow() == ENDED
    }

    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.all.subscribe()
    }

    pub(crate) fn listen_to_remote(&self) -> watch::Receiver<u64> {
        self.remote.subscribe()
    }
}

/// A log reader: every matching event, in commit order, without gaps.
#[derive(Debug)]
pub struct Subscription {
    store: Arc<dyn Store>,
    commits: watch::Receiver<u64>,
    cursor: Cursor,
    filter: EventFilter,
    page: usize,
}

impl Subscription {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        commits: watch::Receiver<u64>,
        cursor: Cursor,
        filter: EventFilter,
        page: usize,
    ) -> Self {
        Self { store, commits, cursor, filter, page: page.clamp(1, 10_000) }
    }

    /// The cursor after the last event that was read. A later subscription can continue from it.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Continues from another cursor, for example the oldest event after [`Error::CursorExpired`].
    pub fn seek(&mut self, cursor: Cursor) {
        self.cursor = cursor;
    }

    /// The next events; waits if none exist. [`Error::CursorExpired`] if unread events were
    /// trimmed, [`Error::Disconnected`] if the engine has shut down or the store fails; a later
    /// subscription can continue from its cursor.
    pub async fn next(&mut self) -> Result<Vec<LogEvent>, Error> {
        loop {
            let events = self.look().await?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.changed().await?;
        }
    }

    /// The next events, without waiting; [`Subscription::changed`] waits for later ones.
    pub(crate) async fn look(&mut self) -> Result<Vec<LogEvent>, Error> {
        if *self.commits.borrow_and_update() == ENDED {
            return Err(self.disconnected(Error::ShuttingDown));
        }
        match self.read().await {
            Err(Error::Store(_)) if *self.commits.borrow() == ENDED => {
                Err(self.disconnected(Error::ShuttingDown))
            }
            Err(error @ Error::Store(_)) => Err(self.disconnected(error)),
            other => other,
        }
    }

    /// Waits until the log may have grown since the last look.
    pub(crate) async fn changed(&mut self) -> Result<(), Error> {
        let changed = self.commits.changed().await;
        changed.map_err(|_| self.disconnected(Error::ShuttingDown))
    }

    /// Skips to the end of the log if more than `most` events are unread. Returns whether it did.
    pub(crate) async fn skip(&mut self, most: u64) -> Result<bool, Error> {
        let log = self.store.describe().await?;
        let is_far = log.incarnation != self.cursor.incarnation
            || log.last_seq.saturating_sub(self.cursor.seq) > most;
        if is_far {
            self.cursor = Cursor { incarnation: log.incarnation, seq: log.last_seq };
        }
        Ok(is_far)
    }

    fn disconnected(&self, cause: Error) -> Error {
        Error::Disconnected { cursor: self.cursor.clone(), cause: Box::new(cause) }
    }

    /// The next events, without waiting.
    pub async fn read(&mut self) -> Result<Vec<LogEvent>, Error> {
        loop {
            let mut events = self.read_page().await?;
            let more = !events.is_empty();
            events.retain(|event| self.filter.matches(event));
            if !events.is_empty() || !more {
                return Ok(events);
            }
        }
    }

    /// The next events, before filtering.
    async fn read_page(&mut self) -> Result<Vec<LogEvent>, Error> {
        let events = self.store.events(self.cursor.seq, self.page).await?;
        // The floor is read after the events: events trimmed before that read are below it.
        let floor = floor(&*self.store).await?;
        let log = self.store.describe().await?;
        self.cursor.check(&log.incarnation, floor, log.last_seq)?;
        if let Some(last) = events.last() {
            self.cursor.seq = last.seq;
        }
        Ok(events)
    }

    /// The events one by one. The stream ends after its first error.
    pub fn into_stream(self) -> EventStream {
        EventStream::new(self)
    }
}

/// The highest trimmed sequence number.
pub(crate) async fn floor(store: &dyn Store) -> Result<u64, Error> {
    let rows = store.query(&Query::one(Log::key_of())).await?;
    let log = rows.first().and_then(|row| read_row::<Log>(row.schema, &row.body));
    Ok(log.map_or(0, |log| log.floor))
}
