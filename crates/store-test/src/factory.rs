use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use windlass_store::{ManualClock, MemoryStore, Store};

/// What a store supplies to be tested.
#[async_trait]
pub trait Factory: Send + Sync {
    /// A handle on the records of `place`, as one process would have it. The first handle on a
    /// place finds it empty; each further one is a handle of its own on the same records. All
    /// handles on one place are given the same clock.
    ///
    /// A suite uses a place once, so a factory serves one run of each suite. Names of places are
    /// made of letters, digits, `_` and `-`, so that they can name files and schemas.
    async fn open(&self, place: &str, clock: Arc<ManualClock>) -> Arc<dyn Store>;
}

/// Stores in memory, kept for as long as the factory is.
#[derive(Debug, Default)]
pub struct MemoryFactory {
    places: Mutex<BTreeMap<String, MemoryStore>>,
}

#[async_trait]
impl Factory for MemoryFactory {
    async fn open(&self, place: &str, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let mut places = self.places.lock().expect("no code panics while holding the places");
        let first = || MemoryStore::with_clock(clock);
        Arc::new(places.entry(place.to_owned()).or_insert_with(first).another())
    }
}
