use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use windlass_core::command::{DeleteSubscription, MoveSubscriptionCursor};
use windlass_core::{Cursor, LogEvent, Outcome, SubscriptionCursor, Table, Tenant};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;
use crate::filter::EventFilter;
use crate::subscription::Subscription;

/// Filtered-out events after which the stored cursor is advanced past them.
const MAX_SKIPPED: u64 = 1_000;

/// Time after which it is advanced past fewer.
const MAX_SKIP_AGE: Duration = Duration::from_secs(60);

/// A durable subscription: its cursor is stored under a name.
///
/// Delivers at least once, in order: unacknowledged events are redelivered. Concurrent readers of
/// one name are not excluded; each sees all events after its start.
///
/// While it waits and every delivered event is acknowledged, the cursor advances past filtered-out
/// events, so that a subscription to rare events does not fall behind the log.
#[derive(Debug)]
pub struct DurableSubscription {
    engine: Engine,
    tenant: Tenant,
    name: String,
    subscription: Subscription,
    /// Sequence number of the last delivered event.
    delivered: u64,
    /// Sequence number up to which all events are acknowledged.
    acknowledged: AtomicU64,
}

impl Engine {
    /// Continues the log from the stored cursor of this name, or from the oldest event if it has
    /// none. The name belongs to the filter's tenant, or to the default tenant.
    pub async fn subscribe_durable(
        &self,
        name: impl Into<String>,
        filter: EventFilter,
    ) -> Result<DurableSubscription, Error> {
        let (name, tenant) = (name.into(), filter.tenant.clone().unwrap_or_default());
        let stored = self.subscription_cursor(&tenant, &name).await?;
        let cursor = stored.map(|stored| stored.cursor.clone());
        let subscription = self.subscribe_with(filter, cursor).await?;
        let start = subscription.cursor().seq;
        let (engine, acknowledged) = (self.clone(), AtomicU64::new(start));
        Ok(DurableSubscription {
            engine,
            tenant,
            name,
            subscription,
            delivered: start,
            acknowledged,
        })
    }

    /// The cursor of a durable subscription, if it has acknowledged anything.
    pub async fn subscription_cursor(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Arc<SubscriptionCursor>>, Error> {
        self.one::<SubscriptionCursor>(SubscriptionCursor::key_of(tenant, name)).await
    }

    /// The durable subscriptions of a tenant after `after`, by name.
    pub async fn subscription_cursors(
        &self,
        tenant: &Tenant,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Arc<SubscriptionCursor>>, Error> {
        let after = after.map(|name| vec![tenant.into(), name.into()]);
        let query = Query::all(Table::SubscriptionCursor, limit);
        self.list::<SubscriptionCursor>(Query { prefix: vec![tenant.into()], after, ..query }).await
    }

    /// Deletes a durable subscription: its name starts again at the oldest event. Returns whether
    /// it existed.
    pub async fn delete_subscription(&self, tenant: &Tenant, name: &str) -> Result<bool, Error> {
        let delete = DeleteSubscription { tenant: tenant.clone(), name: name.to_owned() };
        match self.submit(delete).await? {
            Outcome::SubscriptionDeleted { existed } => Ok(existed),
            other => unreachable!("unexpected outcome of a delete: {other:?}"),
        }
    }
}

impl DurableSubscription {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cursor after the last event that was read, acknowledged or not.
    pub fn cursor(&self) -> &Cursor {
        self.subscription.cursor()
    }

    /// Continues from another cursor; see [`Subscription::seek`].
    pub fn seek(&mut self, cursor: Cursor) {
        self.delivered = cursor.seq;
        self.acknowledged = AtomicU64::new(cursor.seq);
        self.subscription.seek(cursor);
    }

    /// The next events; see [`Subscription::next`].
    pub async fn next(&mut self) -> Result<Vec<LogEvent>, Error> {
        let mut advance_at = Instant::now() + MAX_SKIP_AGE;
        loop {
            let events = self.subscription.look().await?;
            if !events.is_empty() {
                return Ok(self.deliver(events));
            }
            let skipped = self.skipped();
            if skipped >= MAX_SKIPPED || skipped > 0 && Instant::now() >= advance_at {
                self.ack_all().await?;
                advance_at = Instant::now() + MAX_SKIP_AGE;
            } else if skipped > 0 {
                // The log may stay idle: advance after a timeout.
                timeout_at(advance_at, self.subscription.changed()).await.unwrap_or(Ok(()))?;
            } else {
                self.subscription.changed().await?;
            }
        }
    }

    /// Filtered-out events the cursor may skip; 0 while delivered events are unacknowledged.
    fn skipped(&self) -> u64 {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        if acknowledged < self.delivered {
            0
        } else {
            self.cursor().seq.saturating_sub(acknowledged)
        }
    }

    /// The next events, without waiting.
    pub async fn read(&mut self) -> Result<Vec<LogEvent>, Error> {
        let events = self.subscription.read().await?;
        Ok(self.deliver(events))
    }

    fn deliver(&mut self, events: Vec<LogEvent>) -> Vec<LogEvent> {
        self.delivered = events.last().map_or(self.delivered, |last| last.seq);
        events
    }

    /// Acknowledges all events up to this cursor. Within one incarnation of the log the cursor only
    /// moves forward, so a late acknowledgement is harmless. Returns the stored cursor.
    pub async fn ack(&self, cursor: &Cursor) -> Result<Cursor, Error> {
        let (tenant, name) = (self.tenant.clone(), self.name.clone());
        let moved = MoveSubscriptionCursor { tenant, name, cursor: cursor.clone() };
        match self.engine.submit(moved).await? {
            Outcome::SubscriptionCursorAt(moved) => {
                self.acknowledged.fetch_max(cursor.seq, Ordering::Relaxed);
                Ok(moved)
            }
            other => unreachable!("unexpected outcome of an ack: {other:?}"),
        }
    }

    /// Acknowledges all events that were read.
    pub async fn ack_all(&self) -> Result<Cursor, Error> {
        self.ack(self.cursor()).await
    }
}
