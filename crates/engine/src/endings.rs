use std::sync::Arc;

use tokio::sync::Mutex;
use windlass_core::{Event, TaskKey};

use crate::engine::Engine;
use crate::error::Error;
use crate::subscription::Subscription;
use crate::watchers::{Watch, Watchers};

/// Log events read beyond the number of waiting callers before giving up matching: with more, every
/// waiting caller re-reads its task.
const MOST_EVENTS: u64 = 1_000;

/// Callers that wait for tasks to end. Local commits notify them directly; one log reader for all
/// of them finds the commits of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Whether the log reader runs. Locked while it starts or ends, so that a new watch always has
    /// a running reader.
    has_reader: Mutex<bool>,
    watchers: Arc<Watchers<TaskKey>>,
}

impl Endings {
    /// Starts watching a task: no change after this call is missed.
    pub(crate) async fn watch(engine: &Engine, key: &TaskKey) -> Result<Watch<TaskKey>, Error> {
        if engine.has_ended() {
            return Err(Error::ShuttingDown);
        }
        let endings = engine.endings().clone();
        let mut has_reader = endings.has_reader.lock().await;
        let watch = endings.watchers.watch(key);
        if !*has_reader {
            let others = engine.subscribe_to_others().await?;
            engine.runtime().spawn(endings.clone().read(others));
            *has_reader = true;
        }
        drop(has_reader);
        Ok(watch)
    }

    /// Notifies the callers that wait for tasks of this commit.
    pub(crate) fn tell(&self, events: &[Event]) {
        if self.watchers.is_empty() {
            return;
        }
        for event in events.iter().filter(|event| !event.change.leaves_open()) {
            if let Some((id, _)) = &event.task {
                self.watchers.tell(&TaskKey::new(&event.tenant, id));
            }
        }
    }

    /// Reads the commits of other nodes until the log ends or a read fails.
    async fn read(self: Arc<Self>, mut log: Subscription) {
        while log.changed().await.is_ok() && self.catch_up(&mut log).await.is_ok() {}
        *self.has_reader.lock().await = false;
        // Remaining watchers re-read their task and get the error themselves.
        self.watchers.tell_all();
    }

    async fn catch_up(&self, log: &mut Subscription) -> Result<(), Error> {
        let most = MOST_EVENTS + self.watchers.count();
        if log.skip(most).await? {
            self.watchers.tell_all();
            return Ok(());
        }
        loop {
            let events = log.look().await?;
            if events.is_empty() {
                return Ok(());
            }
            for event in &events {
                let Some(id) = &event.task else { continue };
                self.watchers.tell(&TaskKey::new(&event.tenant, id));
            }
        }
    }
}
