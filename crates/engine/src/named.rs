use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use windlass_core::command::{DropBookmark, MoveBookmark};
use windlass_core::{Bookmark, Cursor, Logged, Outcome, Table, Tenant};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;
use crate::filter::Filter;
use crate::subscription::Subscription;

/// How far a subscriber may be ahead of its place with entries that its filter does not take.
const PASSED_OVER: u64 = 1_000;

/// For how long it may be.
const PASSED_FOR: Duration = Duration::from_secs(60);

/// A subscription whose place is kept in the store, under a name.
///
/// What was not acknowledged comes again: at least once, in order. Nothing keeps two readers of one
/// name apart; each sees everything behind the place where it started.
///
/// While it waits for the next event, and everything that it has shown is acknowledged, its place
/// moves past what its filter does not take: who waits for something rare does not fall behind.
#[derive(Debug)]
pub struct NamedSubscription {
    engine: Engine,
    tenant: Tenant,
    name: String,
    subscription: Subscription,
    /// The last number that it has shown.
    shown: u64,
    /// The last number up to which everything is done with.
    done: AtomicU64,
}

impl Engine {
    /// Reads the log on from where this name has come, or from its oldest entry the first time. The
    /// name is one of the tenant that the filter names, or of the default one.
    pub async fn subscribe_named(
        &self,
        name: impl Into<String>,
        filter: Filter,
    ) -> Result<NamedSubscription, Error> {
        let (name, tenant) = (name.into(), filter.tenant.clone().unwrap_or_default());
        let known = self.bookmark(&tenant, &name).await?;
        let cursor = known.map(|known| known.cursor.clone());
        let subscription = self.subscribe_with(filter, cursor).await?;
        let start = subscription.cursor().seq;
        let (engine, done) = (self.clone(), AtomicU64::new(start));
        Ok(NamedSubscription { engine, tenant, name, subscription, shown: start, done })
    }

    /// How far a named subscriber has come, if it has acknowledged anything.
    pub async fn bookmark(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Arc<Bookmark>>, Error> {
        self.one::<Bookmark>(Bookmark::key_of(tenant, name)).await
    }

    /// The named subscribers of a tenant behind `after`, by name.
    pub async fn bookmarks(
        &self,
        tenant: &Tenant,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Arc<Bookmark>>, Error> {
        let after = after.map(|name| vec![tenant.into(), name.into()]);
        let query = Query::all(Table::Bookmark, limit);
        self.list::<Bookmark>(Query { prefix: vec![tenant.into()], after, ..query }).await
    }

    /// Forgets a named subscriber: under this name the log is read from its oldest entry again.
    /// Says whether it was known.
    pub async fn forget_subscriber(&self, tenant: &Tenant, name: &str) -> Result<bool, Error> {
        let forget = DropBookmark { tenant: tenant.clone(), name: name.to_owned() };
        match self.submit(forget).await? {
            Outcome::BookmarkDropped { known } => Ok(known),
            other => unreachable!("it is answered as it is asked, not {other:?}"),
        }
    }
}

impl NamedSubscription {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Behind everything that was read, whether it is acknowledged or not.
    pub fn cursor(&self) -> &Cursor {
        self.subscription.cursor()
    }

    /// Goes on from elsewhere; see [`Subscription::seek`].
    pub fn seek(&mut self, cursor: Cursor) {
        self.shown = cursor.seq;
        self.done = AtomicU64::new(cursor.seq);
        self.subscription.seek(cursor);
    }

    /// The next events; see [`Subscription::next`].
    pub async fn next(&mut self) -> Result<Vec<Logged>, Error> {
        let mut moves_at = Instant::now() + PASSED_FOR;
        loop {
            let events = self.subscription.look().await?;
            if !events.is_empty() {
                return Ok(self.show(events));
            }
            let ahead = self.ahead();
            if ahead >= PASSED_OVER || ahead > 0 && Instant::now() >= moves_at {
                self.ack_all().await?;
                moves_at = Instant::now() + PASSED_FOR;
            } else if ahead > 0 {
                // Nothing else may come: then time moves it.
                timeout_at(moves_at, self.subscription.changed()).await.unwrap_or(Ok(()))?;
            } else {
                self.subscription.changed().await?;
            }
        }
    }

    /// How many entries its place could move past since everything shown is acknowledged.
    fn ahead(&self) -> u64 {
        let done = self.done.load(Ordering::Relaxed);
        if done < self.shown { 0 } else { self.cursor().seq.saturating_sub(done) }
    }

    /// The next events that are there already.
    pub async fn read(&mut self) -> Result<Vec<Logged>, Error> {
        let events = self.subscription.read().await?;
        Ok(self.show(events))
    }

    fn show(&mut self, events: Vec<Logged>) -> Vec<Logged> {
        self.shown = events.last().map_or(self.shown, |last| last.seq);
        events
    }

    /// Everything up to this cursor is done with. The place moves only forward within one life of
    /// the log, so that a late word does no harm; the answer says where it stands.
    pub async fn ack(&self, cursor: &Cursor) -> Result<Cursor, Error> {
        let (tenant, name) = (self.tenant.clone(), self.name.clone());
        let moved = MoveBookmark { tenant, name, cursor: cursor.clone() };
        match self.engine.submit(moved).await? {
            Outcome::BookmarkAt(moved) => {
                self.done.fetch_max(cursor.seq, Ordering::Relaxed);
                Ok(moved)
            }
            other => unreachable!("it is answered as it is asked, not {other:?}"),
        }
    }

    /// Everything that was read is done with.
    pub async fn ack_all(&self) -> Result<Cursor, Error> {
        self.ack(self.cursor()).await
    }
}
