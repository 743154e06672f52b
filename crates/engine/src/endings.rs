use std::sync::Arc;

use tokio::sync::Mutex;
use windlass_core::{Cursor, TaskKey};

use crate::engine::Engine;
use crate::error::Error;
use crate::subscription::Subscription;
use crate::watchers::{Watch, Watchers};

/// Who waits for which task to end. One reader of the log serves all of them, for as long as there
/// are any.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Whether there is a reader. Held while one starts or ends, so that whoever comes to wait
    /// finds it at work.
    has_reader: Mutex<bool>,
    watchers: Arc<Watchers<TaskKey>>,
}

impl Endings {
    /// From here on nothing that happens to the task is missed.
    pub(crate) async fn watch(engine: &Engine, key: &TaskKey) -> Result<Watch<TaskKey>, Error> {
        if engine.has_ended() {
            return Err(Error::ShuttingDown);
        }
        let endings = engine.endings().clone();
        let mut has_reader = endings.has_reader.lock().await;
        let watch = endings.watchers.watch(key);
        if !*has_reader {
            let log = engine.describe().await?;
            let end = Cursor { incarnation: log.incarnation, seq: log.last_seq };
            let subscription = engine.subscribe(Some(end)).await?;
            engine.runtime().spawn(endings.clone().read(subscription));
            *has_reader = true;
        }
        drop(has_reader);
        Ok(watch)
    }

    /// Reads the log until nobody waits any more, or it cannot be read.
    async fn read(self: Arc<Self>, mut log: Subscription) {
        loop {
            let events = log.next().await;
            for event in events.iter().flatten() {
                let Some(id) = &event.task else { continue };
                self.watchers.tell(&TaskKey::new(&event.tenant, id));
            }
            if events.is_ok() && !self.watchers.is_empty() {
                continue;
            }
            let mut has_reader = self.has_reader.lock().await;
            if events.is_ok() && !self.watchers.is_empty() {
                continue;
            }
            *has_reader = false;
            // Whoever still waits looks for itself, and learns what is wrong.
            self.watchers.tell_all();
            return;
        }
    }
}
