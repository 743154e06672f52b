//! Word of what other handles commit: by NOTIFY, and by a look at the clock for what got lost.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_postgres::{AsyncMessage, Client, Error};
use windlass_core::Timestamp;
use windlass_postgres_link::Link;
use windlass_store::{Notice, Word};

use crate::store::Shared;

/// How often to look for what nobody told of, and to try to connect again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Postgres takes less than 8,000 bytes, and there is more to say than the notice.
pub(crate) const LONGEST_WORD: usize = 7_900;
/// The origin of every notice: somebody else.
const SOMEBODY: u64 = 1;

/// Listens until the store is gone; says when it has begun to.
pub(crate) async fn listen(
    link: Link,
    shared: Arc<Shared>,
    notices: broadcast::Sender<(u64, Notice)>,
    begun: oneshot::Sender<()>,
) {
    let mut begun = Some(begun);
    loop {
        let ended = hear(&link, &shared, &notices, &mut begun).await;
        tracing::warn!(?ended, "the connection that listens is lost, or says nothing");
        // Nobody tells anything: who waits has to look.
        tell_anything(&shared, &notices);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn hear(
    link: &Link,
    shared: &Shared,
    notices: &broadcast::Sender<(u64, Notice)>,
    begun: &mut Option<oneshot::Sender<()>>,
) -> Result<(), Error> {
    let Ok(connected) = timeout(shared.options.patience, link.connect()).await else {
        return Ok(());
    };
    let (client, mut connection) = connected?;
    let (told, mut words) = mpsc::unbounded_channel();
    let driver = async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message? {
                // Nobody is left to be told when this ends.
                let _ = told.send(notification.payload().to_owned());
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
        match begun.take() {
            // Whoever opened the store has not looked at anything yet.
            Some(begun) => drop(begun.send(())),
            // What was told while nobody listened is lost, and the clock does not show all of it.
            None => tell_anything(shared, notices),
        }
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut repaired = Instant::now();
        loop {
            tokio::select! {
                Some(word) = words.recv() => tell(shared, notices, &word),
                _ = look.tick() => {
                    let look = look_at_clock(&client, shared);
                    // A connection that says nothing more is left.
                    let Ok(later) = shared.options.in_time(look).await else {
                        return Ok(());
                    };
                    if later? {
                        tell_anything(shared, notices);
                    } else if repaired.elapsed() >= shared.options.patience {
                        repaired = Instant::now();
                        // Who dies lets go of what others have passed over, and tells nobody.
                        let _ = notices.send((SOMEBODY, Notice::Anything));
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

fn tell(shared: &Shared, notices: &broadcast::Sender<(u64, Notice)>, word: &str) {
    let Word { origin, at, lowest, notice } = Word::read(word);
    if origin == shared.origin {
        return;
    }
    shared.heard(at);
    shared.starts.lower(&lowest);
    if notice == Notice::Anything {
        shared.starts.forget();
    }
    // Nobody listening is fine.
    let _ = notices.send((SOMEBODY, notice));
}

/// Anything may have happened that nobody told of.
fn tell_anything(shared: &Shared, notices: &broadcast::Sender<(u64, Notice)>) {
    shared.starts.forget();
    let _ = notices.send((SOMEBODY, Notice::Anything));
}

/// Whether there was a commit that is later than all that was heard of: the word of it got lost.
async fn look_at_clock(client: &Client, shared: &Shared) -> Result<bool, Error> {
    let row = client.query_typed_one(shared.sql().written("clock"), &[]).await?;
    Ok(shared.heard(Timestamp::from_micros(row.try_get(0)?)))
}
