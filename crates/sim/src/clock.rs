use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use windlass_core::Timestamp;
use windlass_store::Clock;

/// The start time of every run.
const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// The time of a run, advanced by the driver. The wall clock can be set independently.
#[derive(Debug, Default)]
pub(crate) struct Time {
    elapsed_us: AtomicU64,
    wall_us: AtomicI64,
}

impl Time {
    pub(crate) fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(0);
        self.elapsed_us.fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn set_wall(&self, by_ms: i64) {
        self.wall_us.fetch_add(by_ms * 1_000, Ordering::Relaxed);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_micros(self.elapsed_us.load(Ordering::Relaxed))
    }
}

/// A wall clock with a skew against that of the store.
#[derive(Debug)]
pub(crate) struct WallClock {
    pub(crate) time: Arc<Time>,
    pub(crate) skew_ms: i64,
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.time.elapsed().as_micros()).unwrap_or(0);
        let wall = self.time.wall_us.load(Ordering::Relaxed);
        Timestamp::from_micros(START.micros() + elapsed + wall + self.skew_ms * 1_000)
    }

    fn steady(&self) -> Duration {
        self.time.elapsed()
    }
}
