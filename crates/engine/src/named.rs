use std::sync::Arc;

use windlass_core::command::{DropBookmark, MoveBookmark};
use windlass_core::{Bookmark, Cursor, Logged, Outcome, Table, Tenant};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;
use crate::filter::Filter;
use crate::subscription::Subscription;

/// A subscription whose place is kept in the store, under a name.
///
/// What was not acknowledged comes again: at least once, in order. Nothing keeps two readers of one
/// name apart; each sees everything behind the place where it started.
#[derive(Debug)]
pub struct NamedSubscription {
    engine: Engine,
    tenant: Tenant,
    name: String,
    subscription: Subscription,
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
        Ok(NamedSubscription { engine: self.clone(), tenant, name, subscription })
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
        self.subscription.seek(cursor);
    }

    /// The next events; see [`Subscription::next`].
    pub async fn next(&mut self) -> Result<Vec<Logged>, Error> {
        self.subscription.next().await
    }

    /// The next events that are there already.
    pub async fn read(&mut self) -> Result<Vec<Logged>, Error> {
        self.subscription.read().await
    }

    /// Everything up to this cursor is done with. The place moves only forward within one life of
    /// the log, so that a late word does no harm; the answer says where it stands.
    pub async fn ack(&self, cursor: &Cursor) -> Result<Cursor, Error> {
        let (tenant, name) = (self.tenant.clone(), self.name.clone());
        let moved = MoveBookmark { tenant, name, cursor: cursor.clone() };
        match self.engine.submit(moved).await? {
            Outcome::BookmarkAt(cursor) => Ok(cursor),
            other => unreachable!("it is answered as it is asked, not {other:?}"),
        }
    }

    /// Everything that was read is done with.
    pub async fn ack_all(&self) -> Result<Cursor, Error> {
        self.ack(self.cursor()).await
    }
}
