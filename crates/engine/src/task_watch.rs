use std::sync::Arc;

use tokio::sync::Mutex;
use windlass_core::{Event, TaskKey};

use crate::engine::Engine;
use crate::error::Error;
use crate::keyed_notify::{KeyWaiter, KeyedNotify};
use crate::subscription::Subscription;

/// Unread log events, beyond the number of watched tasks, above which every watched task is read
/// again instead of matching the events.
const MAX_EVENTS: u64 = 1_000;

/// Notifies callers that wait for the end or the status of a task. Local commits notify them
/// directly; one log reader for all of them finds the commits of other nodes.
#[derive(Debug, Default)]
pub(crate) struct TaskWatch {
    /// Whether the log reader runs. Locked while it starts or ends, so that a new waiter always has
    /// a running reader.
    has_reader: Mutex<bool>,
    waiters: Arc<KeyedNotify<TaskKey>>,
}

impl TaskWatch {
    /// Registers a waiter for a task: it misses no change after this call.
    pub(crate) async fn register(
        engine: &Engine,
        key: &TaskKey,
    ) -> Result<KeyWaiter<TaskKey>, Error> {
        if engine.has_ended() {
            return Err(Error::ShuttingDown);
        }
        let watch = engine.task_watch().clone();
        let mut has_reader = watch.has_reader.lock().await;
        let waiter = watch.waiters.register(key);
        if !*has_reader {
            let log = engine.subscribe_to_remote().await?;
            engine.runtime().spawn(watch.clone().read(log));
            *has_reader = true;
        }
        drop(has_reader);
        Ok(waiter)
    }

    /// Notifies the callers that wait for tasks of this commit.
    pub(crate) fn notify(&self, events: &[Event]) {
        let ends = events.iter().filter(|event| !event.change.leaves_open());
        self.waiters.notify(ends.filter_map(|event| {
            let (id, _) = event.task.as_ref()?;
            Some(TaskKey::new(&event.tenant, id))
        }));
    }

    /// Reads the commits of other nodes until the log ends or a read fails.
    async fn read(self: Arc<Self>, mut log: Subscription) {
        while log.changed().await.is_ok() && self.catch_up(&mut log).await.is_ok() {}
        *self.has_reader.lock().await = false;
        // Remaining waiters read their task again and get the error themselves.
        self.waiters.notify_all();
    }

    async fn catch_up(&self, log: &mut Subscription) -> Result<(), Error> {
        if log.skip(MAX_EVENTS + self.waiters.len() as u64).await? {
            self.waiters.notify_all();
            return Ok(());
        }
        loop {
            let events = log.look().await?;
            if events.is_empty() {
                return Ok(());
            }
            let tasks =
                events.iter().filter_map(|event| Some((&event.tenant, event.task.as_ref()?)));
            self.waiters.notify(tasks.map(|(tenant, id)| TaskKey::new(tenant, id)));
        }
    }
}
