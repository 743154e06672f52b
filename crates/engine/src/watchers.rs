use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Registered waiters by key. A key is removed with its last waiter.
#[derive(Debug)]
pub(crate) struct Watchers<K>(Mutex<BTreeMap<K, Watched>>);

#[derive(Debug, Default)]
struct Watched {
    waiting: usize,
    changed: Arc<Notify>,
}

/// A registered waiter, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch<K: Ord> {
    watchers: Arc<Watchers<K>>,
    key: K,
    /// Resolves on the first change after registration.
    changed: Pin<Box<OwnedNotified>>,
}

impl<K> Default for Watchers<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone> Watchers<K> {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<K, Watched>> {
        self.0.lock().expect("no code panics while holding the map")
    }

    pub(crate) fn watch(self: &Arc<Self>, key: &K) -> Watch<K> {
        let mut watched = self.watched();
        let known = watched.entry(key.clone()).or_default();
        known.waiting += 1;
        let changed = Box::pin(known.changed.clone().notified_owned());
        Watch { watchers: self.clone(), key: key.clone(), changed }
    }

    pub(crate) fn tell(&self, key: &K) {
        if let Some(known) = self.watched().get(key) {
            known.changed.notify_waiters();
        }
    }

    pub(crate) fn tell_all(&self) {
        self.watched().values().for_each(|known| known.changed.notify_waiters());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.watched().is_empty()
    }

    pub(crate) fn count(&self) -> u64 {
        self.watched().len() as u64
    }
}

impl<K: Ord> Watch<K> {
    /// Waits for a change since registration. Await it once.
    pub(crate) async fn changed(&mut self) {
        self.changed.as_mut().await;
    }
}

impl<K: Ord> Drop for Watch<K> {
    fn drop(&mut self) {
        let mut watched = self.watchers.0.lock().expect("no code panics while holding the map");
        if let Some(known) = watched.get_mut(&self.key) {
            known.waiting -= 1;
            if known.waiting == 0 {
                watched.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other threads may run between registration and the wait.
    #[tokio::test(start_paused = true)]
    async fn a_change_between_watch_and_wait_is_not_missed() {
        let tells: [fn(&Watchers<u32>); 2] = [|all| all.tell(&1), Watchers::tell_all];
        for tell in tells {
            let watchers = Arc::new(Watchers::default());
            let mut watch = watchers.watch(&1);
            tell(&watchers);
            let heard = tokio::time::timeout(std::time::Duration::from_secs(1), watch.changed());
            assert!(heard.await.is_ok());
        }
    }
}
