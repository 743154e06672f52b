use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard};

use tokio::sync::{Mutex, Notify};
use windlass_core::{Cursor, TaskKey};

use crate::engine::Engine;
use crate::error::Error;
use crate::subscription::Subscription;

/// Who waits for which task to end. One reader of the log serves all of them, for as long as there
/// are any.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Whether there is a reader. Held while one starts or ends, so that whoever comes to wait
    /// finds it at work.
    has_reader: Mutex<bool>,
    watched: SyncMutex<BTreeMap<TaskKey, Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    waiting: usize,
    changed: Arc<Notify>,
}

/// A place among those who wait, until it is dropped.
pub(crate) struct Watch {
    endings: Arc<Endings>,
    key: TaskKey,
    /// Told of whatever happens to the task.
    pub(crate) changed: Arc<Notify>,
}

impl Watch {
    pub(crate) async fn of(engine: &Engine, key: &TaskKey) -> Result<Self, Error> {
        if engine.has_ended() {
            return Err(Error::ShuttingDown);
        }
        let endings = engine.endings().clone();
        let mut has_reader = endings.has_reader.lock().await;
        let watch = endings.watch(key);
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
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.endings.watched();
        if let Some(known) = watched.get_mut(&self.key) {
            known.waiting -= 1;
            if known.waiting == 0 {
                watched.remove(&self.key);
            }
        }
    }
}

impl Endings {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<TaskKey, Watched>> {
        self.watched.lock().expect("nothing panics while it holds the names of tasks")
    }

    fn watch(self: &Arc<Self>, key: &TaskKey) -> Watch {
        let mut watched = self.watched();
        let known = watched.entry(key.clone()).or_default();
        known.waiting += 1;
        Watch { endings: self.clone(), key: key.clone(), changed: known.changed.clone() }
    }

    /// Reads the log until nobody waits any more, or it cannot be read.
    async fn read(self: Arc<Self>, mut log: Subscription) {
        loop {
            let events = log.next().await;
            for event in events.iter().flatten() {
                let Some(id) = &event.task else { continue };
                if let Some(known) = self.watched().get(&TaskKey::new(&event.tenant, id)) {
                    known.changed.notify_waiters();
                }
            }
            if events.is_ok() && !self.watched().is_empty() {
                continue;
            }
            let mut has_reader = self.has_reader.lock().await;
            if events.is_ok() && !self.watched().is_empty() {
                continue;
            }
            *has_reader = false;
            // Whoever still waits looks for itself, and learns what is wrong.
            self.watched().values().for_each(|known| known.changed.notify_waiters());
            return;
        }
    }
}
