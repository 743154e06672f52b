use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use windlass_core::Timestamp;

/// The time source of a store or an engine.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Monotonic time since a fixed start.
    fn steady(&self) -> Duration;
}

/// The time of batches: the clock's time, but later than every earlier commit. While the clock is
/// behind the last commit, as after it was set back, time advances from there monotonically.
#[derive(Debug, Default)]
pub struct MonotonicTime {
    anchor: Option<(Timestamp, Duration)>,
}

impl MonotonicTime {
    pub fn now(&mut self, clock: &dyn Clock, last_commit_at: Timestamp) -> Timestamp {
        self.time(clock.now(), clock.steady(), last_commit_at)
    }

    /// Like [`MonotonicTime::now`], with clock readings taken earlier.
    pub fn time(
        &mut self,
        now: Timestamp,
        steady: Duration,
        last_commit_at: Timestamp,
    ) -> Timestamp {
        if now > last_commit_at {
            self.anchor = None;
            return now;
        }
        let (from, since) = *self.anchor.get_or_insert((last_commit_at, steady));
        let micros = i64::try_from(steady.saturating_sub(since).as_micros()).unwrap_or(i64::MAX);
        let paced = Timestamp::from_micros(from.micros().saturating_add(micros));
        if paced <= last_commit_at {
            // A batch that began while the clock was ahead has committed since: continue from its
            // time instead of waiting to reach it.
            self.anchor = Some((last_commit_at, steady));
            return last_commit_at.next();
        }
        paced
    }
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.map_or(0, |since| since.as_micros());
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    fn steady(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }
}

/// A clock that only moves when it is set.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub fn at(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.micros()))
    }

    pub fn set(&self, now: Timestamp) {
        self.0.store(now.micros(), Ordering::SeqCst);
    }

    pub fn advance_ms(&self, ms: u64) {
        self.set(self.now().plus_ms(ms));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Two(i64, u64);

    impl Clock for Two {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0)
        }

        fn steady(&self) -> Duration {
            Duration::from_micros(self.1)
        }
    }

    #[test]
    fn time_advances_while_the_clock_is_behind() {
        let mut pace = MonotonicTime::default();
        for (clock, steady, last, expected) in [
            (100, 0, 50, 100),
            (100, 0, 100, 101),
            (100, 1_000, 500, 1_100),
            (100, 1_400, 500, 1_500),
            (100, 1_400, 5_000, 5_001),
            (100, 1_450, 5_001, 5_050),
            (9_000, 1_500, 5_000, 9_000),
            (10, 2_000, 9_000, 9_001),
            (10, 2_700, 9_001, 9_700),
        ] {
            let now = pace.now(&Two(clock, steady), Timestamp::from_micros(last));
            assert_eq!(now.micros(), expected, "{clock} {steady} {last}");
        }
    }
}
