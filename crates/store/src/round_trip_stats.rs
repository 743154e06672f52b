use std::sync::atomic::{AtomicU64, Ordering};

/// Statements and round trips to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTripStats {
    pub statements: u64,
    pub round_trips: u64,
}

/// Counts the round trips of a handle.
#[derive(Debug, Default)]
pub struct RoundTripCounter {
    statements: AtomicU64,
    round_trips: AtomicU64,
}

impl RoundTripCounter {
    /// Counts statements sent in one round trip.
    pub fn add(&self, statements: usize) {
        self.statements.fetch_add(statements as u64, Ordering::Relaxed);
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> RoundTripStats {
        RoundTripStats {
            statements: self.statements.load(Ordering::Relaxed),
            round_trips: self.round_trips.load(Ordering::Relaxed),
        }
    }
}
