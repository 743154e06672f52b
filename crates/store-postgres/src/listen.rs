//! Commit notifications of other handles: by NOTIFY, and by polling the clock for lost ones.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_postgres::{AsyncMessage, Client, Error};
use windlass_core::Timestamp;
use windlass_postgres_link::Link;
use windlass_store::{CommitNotification, Notification};

use crate::store::Shared;

/// Interval for polling the clock, and for reconnecting.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Postgres limits payloads to less than 8,000 bytes, including more than the notification.
pub(crate) const MAX_NOTIFICATION_BYTES: usize = 7_900;
/// The origin of every notification: another handle.
const OTHER_HANDLE: u64 = 1;

/// Listens until the store is dropped; signals `started` once it listens.
pub(crate) async fn listen(
    link: Link,
    shared: Arc<Shared>,
    notifications: broadcast::Sender<(u64, Notification)>,
    started: oneshot::Sender<()>,
) {
    let mut started = Some(started);
    loop {
        let ended = hear(&link, &shared, &notifications, &mut started).await;
        tracing::warn!(?ended, "the listening connection is lost or timed out");
        // No notifications arrive meanwhile: waiting claims must check.
        tell_anything(&shared, &notifications);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn hear(
    link: &Link,
    shared: &Shared,
    notifications: &broadcast::Sender<(u64, Notification)>,
    started: &mut Option<oneshot::Sender<()>>,
) -> Result<(), Error> {
    let Ok(connected) = timeout(shared.options.patience, link.connect()).await else {
        return Ok(());
    };
    let (client, mut connection) = connected?;
    let (sender, mut payloads) = mpsc::unbounded_channel();
    let driver = async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message? {
                // The listener may have ended.
                let _ = sender.send(notification.payload().to_owned());
            }
        }
        Ok::<(), Error>(())
    };
    let listener = async {
        let begin = async {
            if shared.prepare {
                client.batch_execute(&format!(r#"LISTEN "{}""#, shared.channel)).await?;
            }
            look_at_clock(&client, shared).await
        };
        let Ok(looked) = shared.options.in_time(begin).await else { return Ok(()) };
        looked?;
        match started.take() {
            // On open, no record was read before.
            Some(started) => drop(started.send(())),
            // Notifications sent meanwhile are lost, and the clock does not show all of them.
            None => tell_anything(shared, notifications),
        }
        let mut look = tokio::time::interval(POLL_INTERVAL);
        let mut repaired = Instant::now();
        loop {
            tokio::select! {
                Some(payload) = payloads.recv() => tell(shared, notifications, &payload),
                _ = look.tick() => {
                    let look = look_at_clock(&client, shared);
                    // A connection that timed out is abandoned.
                    let Ok(later) = shared.options.in_time(look).await else {
                        return Ok(());
                    };
                    if later? {
                        tell_anything(shared, notifications);
                    } else if repaired.elapsed() >= shared.options.patience {
                        repaired = Instant::now();
                        // A process that dies releases rows that others skipped, unnotified.
                        let _ = notifications.send((OTHER_HANDLE, Notification::Anything));
                    }
                }
            }
        }
    };
    tokio::select! {
        ended = driver => ended,
        ended = listener => ended,
    }
}

fn tell(shared: &Shared, notifications: &broadcast::Sender<(u64, Notification)>, payload: &str) {
    let decoded = CommitNotification::decode(payload);
    let CommitNotification { origin, at, lowest, notification } = decoded;
    if origin == shared.origin {
        return;
    }
    shared.heard(at);
    shared.hints.lower(&lowest);
    if notification == Notification::Anything {
        shared.hints.forget();
    }
    // There may be no receiver.
    let _ = notifications.send((OTHER_HANDLE, notification));
}

/// Signals that any record may have changed without notification.
fn tell_anything(shared: &Shared, notifications: &broadcast::Sender<(u64, Notification)>) {
    shared.hints.forget();
    let _ = notifications.send((OTHER_HANDLE, Notification::Anything));
}

/// Whether a commit is later than all that were notified: its notification was lost.
async fn look_at_clock(client: &Client, shared: &Shared) -> Result<bool, Error> {
    let row = client.query_typed_one(shared.sql().named("clock"), &[]).await?;
    Ok(shared.heard(Timestamp::from_micros(row.try_get(0)?)))
}
