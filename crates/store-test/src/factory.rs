use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use windlass_store::{ManualClock, MemoryStore, Store};

/// Opens the stores under test.
#[async_trait]
pub trait Factory: Send + Sync {
    /// A handle on the records of `place`, as one process would open it. The first handle on a
    /// place finds it empty; later ones are independent handles on the same records. All handles on
    /// one place get the same clock.
    ///
    /// A suite uses a place once, so a factory serves one run of each suite. Place names consist of
    /// ASCII letters, digits, `_` and `-`, so that they can name files and schemas.
    async fn open(&self, place: &str, clock: Arc<ManualClock>) -> Arc<dyn Store>;
}

/// In-memory stores that live as long as the factory.
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
