use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Notifies the waiters of a key. A key is stored only while it has a waiter.
#[derive(Debug)]
pub(crate) struct KeyedNotify<K>(Mutex<BTreeMap<K, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    waiters: usize,
    notify: Arc<Notify>,
}

/// A registered waiter of one key, until it is dropped.
#[derive(Debug)]
pub(crate) struct KeyWaiter<K: Ord> {
    registry: Arc<KeyedNotify<K>>,
    key: K,
    notify: Arc<Notify>,
    /// Resolves on the first notification after its creation.
    next: Pin<Box<OwnedNotified>>,
}

impl<K> Default for KeyedNotify<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> KeyedNotify<K> {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<K, Entry>> {
        self.0.lock().expect("no code panics while holding the map")
    }

    /// Registers a waiter: it misses no notification after this call.
    pub(crate) fn register(self: &Arc<Self>, key: &K) -> KeyWaiter<K>
    where
        K: Clone,
    {
        let mut entries = self.entries();
        let entry = entries.entry(key.clone()).or_default();
        entry.waiters += 1;
        let notify = entry.notify.clone();
        let next = Box::pin(notify.clone().notified_owned());
        KeyWaiter { registry: self.clone(), key: key.clone(), notify, next }
    }

    /// Notifies the waiters of these keys. The keys are computed only if there is a waiter.
    pub(crate) fn notify(&self, keys: impl IntoIterator<Item = K>) {
        let entries = self.entries();
        if entries.is_empty() {
            return;
        }
        for entry in keys.into_iter().filter_map(|key| entries.get(&key)) {
            entry.notify.notify_waiters();
        }
    }

    pub(crate) fn notify_all(&self) {
        self.entries().values().for_each(|entry| entry.notify.notify_waiters());
    }

    /// The number of keys with a waiter.
    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }
}

impl<K: Ord> KeyWaiter<K> {
    /// Waits for a notification since registration, or since this last returned.
    pub(crate) async fn notified(&mut self) {
        self.next.as_mut().await;
        self.next.set(self.notify.clone().notified_owned());
    }
}

impl<K: Ord> Drop for KeyWaiter<K> {
    fn drop(&mut self) {
        let mut entries = self.registry.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.waiters -= 1;
            if entry.waiters == 0 {
                entries.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_notified(waiter: &mut KeyWaiter<u32>) -> bool {
        tokio::time::timeout(Duration::from_secs(1), waiter.notified()).await.is_ok()
    }

    /// Other threads may commit between registration and the wait.
    #[tokio::test(start_paused = true)]
    async fn a_waiter_registered_before_the_commit_is_notified() {
        let notifies: [fn(&KeyedNotify<u32>); 2] = [|all| all.notify([1]), KeyedNotify::notify_all];
        for notify in notifies {
            let registry = Arc::new(KeyedNotify::default());
            let (mut one, mut other) = (registry.register(&1), registry.register(&1));
            // Twice: a waiter stays registered after a notification.
            for _ in 0..2 {
                notify(&registry);
                assert!(is_notified(&mut one).await && is_notified(&mut other).await);
                assert!(!is_notified(&mut one).await, "once per notification");
            }
        }
    }

    #[test]
    fn a_dropped_waiter_leaves_no_entry() {
        let registry = Arc::new(KeyedNotify::default());
        let (one, other) = (registry.register(&1), registry.register(&1));
        drop(one);
        assert_eq!(registry.len(), 1, "another waiter has the key");
        drop(other);
        assert_eq!(registry.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_notification_without_a_waiter_costs_nothing() {
        let registry = Arc::new(KeyedNotify::default());
        registry.notify(std::iter::once_with(|| unreachable!("no key is computed")));
        let mut waiter = registry.register(&1);
        registry.notify([2]);
        assert_eq!(registry.len(), 1, "a key without a waiter is not stored");
        assert!(!is_notified(&mut waiter).await);
    }
}
