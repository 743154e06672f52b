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
}

impl Timer {
    /// Goes off at once: what a database holds is not known before it was looked at.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let next = Mutex::new(Some(Timestamp::default()));
        Self { next, moved: Notify::new(), clock }
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
        self.lower(Some(self.clock.now()));
    }

    pub(crate) fn in_a_while(&self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.lower(Some(self.clock.now().plus_ms(ms)));
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
            let ms = self.clock.now().ms_until(at);
            if ms == 0 {
                *self.next.lock().expect("nothing panics while it holds the time") = None;
                return;
            }
            // A machine that slept, or a clock that was set, is noticed within the minute.
            let pause = Duration::from_millis(ms).min(Duration::from_secs(60));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = moved => {}
            }
        }
    }
}
