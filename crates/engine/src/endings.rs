use std::sync::Arc;

use tokio::sync::Mutex;
use windlass_core::{Event, TaskKey};

use crate::engine::Engine;
use crate::error::Error;
use crate::subscription::Subscription;
use crate::watchers::{Watch, Watchers};

/// How many events more than those who wait are read to find out whom they concern. When there are
/// more, everybody looks for himself.
const MOST_EVENTS: u64 = 1_000;

/// Who waits for which task to end. The engine tells them of what it commits; what others commit is
/// found in the log by one reader that serves all of them.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Whether there is a reader. Held while one starts or ends, so that whoever comes to wait
    /// finds it at work.
    has_reader: Mutex<bool>,
    watchers: Arc<Watchers<TaskKey>>,
}

impl Endings {
    /// From here on nothing that concerns those who wait for the task is missed.
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

    /// Tells those who wait for what happened in a commit.
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

    /// Reads what others have committed, until there is no more or it cannot be read.
    async fn read(self: Arc<Self>, mut log: Subscription) {
        while log.changed().await.is_ok() && self.catch_up(&mut log).await.is_ok() {}
        *self.has_reader.lock().await = false;
        // Whoever still waits, or is about to, looks for itself, and learns what is wrong.
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
