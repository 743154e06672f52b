use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::Timestamp;
use windlass_store::Clock;

/// When the engine must look next. Whoever commits an earlier appointment moves it forward.
#[derive(Debug)]
pub(crate) struct Timer {
    next: Mutex<Option<Timestamp>>,
    moved: Notify,
    clock: Arc<dyn Clock>,
    /// How far the time of the store is ahead of the clock, in microseconds.
    skew: AtomicI64,
}

/// A difference as small as this is only the time that it took to tell.
const NO_SKEW_US: i64 = 5_000;

impl Timer {
    /// Goes off at once: what a database holds is not known before it was looked at.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let next = Mutex::new(Some(Timestamp::default()));
        Self { next, moved: Notify::new(), clock, skew: AtomicI64::new(0) }
    }

    /// Goes off at `at`, if not earlier.
    pub(crate) fn lower(&self, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        let mut next = self.next.lock().expect("nothing panics while it holds the time");
        if next.is_none_or(|known| at < known) {
            *next = Some(at);
            self.moved.notify_one();
        }
    }

    pub(crate) fn now(&self) {
        self.lower(Some(self.store_time()));
    }

    pub(crate) fn clock(&self) -> Timestamp {
        self.clock.now()
    }

    /// Learns the time of a batch that began when the clock said `clock_at`. Appointments are in
    /// the time of the store.
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

    pub(crate) fn in_a_while(&self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.lower(Some(self.store_time().plus_ms(ms)));
    }

    /// Returns when the time has come; the appointment is then forgotten.
    pub(crate) async fn due(&self) {
        loop {
            let moved = self.moved.notified();
            let next = *self.next.lock().expect("nothing panics while it holds the time");
            let Some(at) = next else {
                moved.await;
                continue;
            };
            let ms = self.store_time().ms_until(at);
            if ms == 0 {
                *self.next.lock().expect("nothing panics while it holds the time") = None;
                return;
            }
            // A machine that slept, or a clock that was set, is noticed within the minute.
            let pause = Duration::from_millis(ms).min(Duration::from_secs(60));
            tokio::select! {
                // Without chance, so that a simulation of it runs the same way twice.
                biased;
                () = tokio::time::sleep(pause) => {}
                () = moved => {}
            }
        }
    }
}
