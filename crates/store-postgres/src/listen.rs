//! Word of what other handles commit: by NOTIFY, and by a look at the clock for what got lost.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};
use windlass_core::Timestamp;
use windlass_store::Notice;

use crate::store::Shared;

/// How often to look for what nobody told of, and to try to connect again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Postgres takes less than 8,000 bytes, and there is more to say than the notice.
const LONGEST_NOTICE: usize = 7_900;
/// The origin of every notice: somebody else.
const SOMEBODY: u64 = 1;

/// What one commit tells the others: who made it, when, and what may be there to find.
pub(crate) fn word(origin: &str, at: Timestamp, notice: &Notice) -> String {
    format!("{origin} {} {}", at.micros(), notice.written(LONGEST_NOTICE))
}

/// Listens until the store is gone; says when it has begun to.
pub(crate) async fn listen(
    config: Config,
    shared: Arc<Shared>,
    notices: broadcast::Sender<(u64, Notice)>,
    begun: oneshot::Sender<()>,
) {
    let mut begun = Some(begun);
    loop {
        if let Err(error) = hear(&config, &shared, &notices, &mut begun).await {
            tracing::warn!(%error, "the connection that listens is lost");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn hear(
    config: &Config,
    shared: &Shared,
    notices: &broadcast::Sender<(u64, Notice)>,
    begun: &mut Option<oneshot::Sender<()>>,
) -> Result<(), Error> {
    let (client, mut connection) = config.connect(NoTls).await?;
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
        client.batch_execute(&format!(r#"LISTEN "{}""#, shared.channel)).await?;
        look_at_clock(&client, shared).await?;
        match begun.take() {
            // Whoever opened the store has not looked at anything yet.
            Some(begun) => drop(begun.send(())),
            // What was told while nobody listened is lost, and the clock does not show all of it.
            None => drop(notices.send((SOMEBODY, Notice::Anything))),
        }
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                Some(word) = words.recv() => tell(shared, notices, &word),
                _ = look.tick() => {
                    let look = look_at_clock(&client, shared);
                    // A connection that says nothing more is left.
                    let Ok(later) = timeout(shared.options.silence(), look).await else {
                        return Ok(());
                    };
                    if later? {
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
    let mut parts = word.splitn(3, ' ');
    if parts.next() == Some(&shared.origin) {
        return;
    }
    if let Some(micros) = parts.next().and_then(|at| at.parse().ok()) {
        shared.heard(Timestamp::from_micros(micros));
    }
    // Nobody listening is fine.
    let _ = notices.send((SOMEBODY, Notice::read(parts.next().unwrap_or_default())));
}

/// Whether there was a commit that is later than all that was heard of: the word of it got lost.
async fn look_at_clock(client: &Client, shared: &Shared) -> Result<bool, Error> {
    let text = format!("SELECT last_value FROM {}", shared.sql.name("clock"));
    let row = client.query_typed_one(&text, &[]).await?;
    Ok(shared.heard(Timestamp::from_micros(row.try_get(0)?)))
}
