use std::fmt;

use serde::{Deserialize, Serialize};

use crate::row::Value;

/// A moment, in microseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The moment `millis` later; the end of time is a wall, not an overflow.
    pub const fn plus_ms(self, millis: u64) -> Self {
        let micros = millis.saturating_mul(1_000);
        Self(self.0.saturating_add_unsigned(micros))
    }

    /// The next moment that can be told apart from this one.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    pub const fn minus_ms(self, millis: u64) -> Self {
        let micros = millis.saturating_mul(1_000);
        Self(self.0.saturating_sub_unsigned(micros))
    }

    /// Milliseconds until `later`, rounded up; zero when it has passed.
    pub const fn ms_until(self, later: Self) -> u64 {
        let micros = later.0.saturating_sub(self.0);
        if micros <= 0 { 0 } else { (micros as u64).div_ceil(1_000) }
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        Value::Int(at.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}
