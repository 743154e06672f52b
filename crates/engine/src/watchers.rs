use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

/// Who waits for news of what. Nothing is kept of what nobody waits for.
#[derive(Debug)]
pub(crate) struct Watchers<K>(Mutex<BTreeMap<K, Watched>>);

#[derive(Debug, Default)]
struct Watched {
    waiting: usize,
    changed: Arc<Notify>,
}

/// A place among those who wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch<K: Ord> {
    watchers: Arc<Watchers<K>>,
    key: K,
    /// Told of whatever happens.
    pub(crate) changed: Arc<Notify>,
}

impl<K> Default for Watchers<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone> Watchers<K> {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<K, Watched>> {
        self.0.lock().expect("nothing panics while it holds the names of what is waited for")
    }

    pub(crate) fn watch(self: &Arc<Self>, key: &K) -> Watch<K> {
        let mut watched = self.watched();
        let known = watched.entry(key.clone()).or_default();
        known.waiting += 1;
        Watch { watchers: self.clone(), key: key.clone(), changed: known.changed.clone() }
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

impl<K: Ord> Drop for Watch<K> {
    fn drop(&mut self) {
        let mut watched = self.watchers.0.lock().expect("nothing panics while it holds the names");
        if let Some(known) = watched.get_mut(&self.key) {
            known.waiting -= 1;
            if known.waiting == 0 {
                watched.remove(&self.key);
            }
        }
    }
}
