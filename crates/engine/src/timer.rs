use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::Timestamp;
use windlass_store::Clock;

/// When the next sweep is due. Commits with an earlier due time lower it.
#[derive(Debug)]
pub(crate) struct Timer {
    next: Mutex<Option<Timestamp>>,
    moved: Notify,
    clock: Arc<dyn Clock>,
    /// Store time minus local time, in microseconds.
    skew: AtomicI64,
}

/// A difference this small is only latency.
const NO_SKEW_US: i64 = 5_000;

impl Timer {
    /// Due immediately: records may already be due in the database.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let next = Mutex::new(Some(Timestamp::default()));
        Self { next, moved: Notify::new(), clock, skew: AtomicI64::new(0) }
    }

    /// Lowers the due time to `at`.
    pub(crate) fn lower(&self, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        let mut next = self.next.lock().expect("no code panics while holding the time");
        if next.is_none_or(|due| at < due) {
            *next = Some(at);
            self.moved.notify_one();
        }
    }

    pub(crate) fn due_now(&self) {
        self.lower(Some(self.store_time()));
    }

    pub(crate) fn clock(&self) -> Timestamp {
        self.clock.now()
    }

    /// Updates the skew from a batch that began at local time `clock_at`. Due times are in store
    /// time.
    pub(crate) fn adjust(&self, batch_at: Timestamp, clock_at: Timestamp) {
        let skew = batch_at.micros().saturating_sub(clock_at.micros());
        let skew = if skew.abs() <= NO_SKEW_US { 0 } else { skew };
        if self.skew.swap(skew, Ordering::Relaxed) != skew {
            self.moved.notify_one();
        }
    }

    fn store_time(&self) -> Timestamp {
        let skew = self.skew.load(Ordering::Relaxed);
        Timestamp::from_micros(self.clock.now().micros().saturating_add(skew))
    }

    pub(crate) fn due_in(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.lower(Some(self.store_time().plus_ms(ms)));
    }

    /// Returns when the due time is reached, and clears it.
    pub(crate) async fn due(&self) {
        loop {
            let moved = self.moved.notified();
            let next = *self.next.lock().expect("no code panics while holding the time");
            let Some(at) = next else {
                moved.await;
                continue;
            };
            let ms = self.store_time().ms_until(at);
            if ms == 0 {
                *self.next.lock().expect("no code panics while holding the time") = None;
                return;
            }
            // Bounded, so that a suspended machine or a changed clock is noticed within a minute.
            let delay = Duration::from_millis(ms).min(Duration::from_secs(60));
            tokio::select! {
                // Deterministic order, so that simulations are reproducible.
                biased;
                () = tokio::time::sleep(delay) => {}
                () = moved => {}
            }
        }
    }
}
