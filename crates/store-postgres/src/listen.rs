//! Word of what other handles commit: by NOTIFY, and by a look at the clock for what got lost.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};
use windlass_core::{ChangeSet, LaneName, Route, Tenant, Timestamp, Wake};
use windlass_store::Notice;

use crate::store::Shared;

/// How often to look for what nobody told of.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before connecting again.
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// Postgres takes no more than 8,000 bytes.
const LONGEST_WORD: usize = 7_900;
/// The origin of every notice: somebody else.
const SOMEBODY: u64 = 1;

/// What one commit tells the others.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Word {
    origin: String,
    at: Timestamp,
    /// None when there is more to tell than fits.
    wakes: Option<Vec<ToWake>>,
    next_due: Option<Timestamp>,
}

/// A lane, what of it, and for how many tasks.
type ToWake = (Tenant, LaneName, Option<Route>, u32);

impl Word {
    pub(crate) fn of(origin: &str, at: Timestamp, changes: &ChangeSet) -> Self {
        let wakes = changes.wakes.iter().map(|(wake, tasks)| {
            (wake.tenant.clone(), wake.lane.clone(), wake.route.clone(), *tasks)
        });
        let next_due = changes.next_due;
        Self { origin: origin.to_owned(), at, wakes: Some(wakes.collect()), next_due }
    }

    pub(crate) fn written(self) -> String {
        let write =
            |word: &Self| serde_json::to_string(word).expect("texts and numbers are written");
        let written = write(&self);
        if written.len() <= LONGEST_WORD {
            return written;
        }
        write(&Self { wakes: None, ..self })
    }

    fn notice(self) -> Notice {
        let Some(wakes) = self.wakes else { return Notice::Anything };
        let wake = |(tenant, lane, route, tasks)| (Wake { tenant, lane, route }, tasks);
        let wakes: BTreeMap<Wake, u32> = wakes.into_iter().map(wake).collect();
        Notice::Changed { wakes, next_due: self.next_due }
    }
}

/// Listens until the store is gone.
pub(crate) async fn listen(
    config: Config,
    shared: Arc<Shared>,
    notices: broadcast::Sender<(u64, Notice)>,
) {
    loop {
        if let Err(error) = hear(&config, &shared, &notices).await {
            tracing::warn!(%error, "the connection that listens is lost");
        }
        // Whatever was told meanwhile was told to nobody.
        let _ = notices.send((SOMEBODY, Notice::Anything));
        tokio::time::sleep(CONNECT_AGAIN).await;
    }
}

async fn hear(
    config: &Config,
    shared: &Shared,
    notices: &broadcast::Sender<(u64, Notice)>,
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
        let _ = notices.send((SOMEBODY, Notice::Anything));
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                Some(word) = words.recv() => tell(shared, notices, &word),
                _ = look.tick() => look_at_clock(&client, shared, notices).await?,
            }
        }
    };
    tokio::select! {
        ended = driver => ended,
        ended = listener => ended,
    }
}

fn tell(shared: &Shared, notices: &broadcast::Sender<(u64, Notice)>, word: &str) {
    let notice = match serde_json::from_str::<Word>(word) {
        Ok(word) if word.origin == shared.origin => return,
        Ok(word) => {
            shared.heard(word.at);
            word.notice()
        }
        // A node of another version may say more.
        Err(_) => Notice::Anything,
    };
    // Nobody listening is fine.
    let _ = notices.send((SOMEBODY, notice));
}

/// A commit that is later than all that was heard of was told by a word that got lost.
async fn look_at_clock(
    client: &Client,
    shared: &Shared,
    notices: &broadcast::Sender<(u64, Notice)>,
) -> Result<(), Error> {
    let text = format!("SELECT last_value FROM {}", shared.sql.name("clock"));
    let row = client.query_one(&text, &[]).await?;
    if shared.heard(Timestamp::from_micros(row.try_get(0)?)) {
        let _ = notices.send((SOMEBODY, Notice::Anything));
    }
    Ok(())
}
