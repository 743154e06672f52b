use std::fmt;

use serde::{Deserialize, Serialize};

use crate::row::Value;

/// A point in time, in microseconds since the Unix epoch.
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

    /// The time `millis` later. Saturates instead of overflowing.
    pub const fn plus_ms(self, millis: u64) -> Self {
        let micros = millis.saturating_mul(1_000);
        Self(self.0.saturating_add_unsigned(micros))
    }

    /// The time one microsecond later.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    pub const fn minus_ms(self, millis: u64) -> Self {
        let micros = millis.saturating_mul(1_000);
        Self(self.0.saturating_sub_unsigned(micros))
    }

    /// Milliseconds until `later`, rounded up; zero if it has passed.
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

/// RFC 3339 in UTC, with milliseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY_MS: i64 = 86_400_000;
        let (year, month, day) = civil(self.millis().div_euclid(DAY_MS));
        let ms = self.millis().rem_euclid(DAY_MS);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        let ms = ms % 1_000;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// The date of a day, counted from 1970-01-01. Years are computed as starting in March, so that the
/// leap day is the last day of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_OF_400_YEARS);
    let day = days.rem_euclid(DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + next, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_formatted_in_utc() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_794_764_096_000, "2026-11-15T17:34:56.000Z"),
        ] {
            assert_eq!(Timestamp::from_millis(ms).to_string(), expected);
        }
        assert!(Timestamp::from_micros(i64::MAX).to_string().starts_with("294247-01-10T"));
    }
}
