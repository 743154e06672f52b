use serde::{Deserialize, Serialize};

use crate::limits;
use crate::rejection::Rejection;
use crate::time::Timestamp;

/// Slices per window: starts are counted with the precision of a slice.
const SLICES: u64 = 32;

/// At most `limit` starts, requests or units in any window of `window_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub limit: u32,
    pub window_ms: u64,
}

/// The starts within one slice of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSlice {
    /// They count until then.
    pub until: Timestamp,
    pub count: u32,
}

impl Rate {
    /// When a start stops counting. Rounded up to a slice, so that no start counts too briefly.
    pub(crate) fn counts_until(self, at: Timestamp) -> Timestamp {
        let slice = (self.window_ms.saturating_mul(1_000) / SLICES).max(1).cast_signed();
        let end = (at.micros().div_euclid(slice) + 1).saturating_mul(slice);
        Timestamp::from_micros(end).plus_ms(self.window_ms)
    }

    /// Checks it against the limits.
    pub fn check(self) -> Result<(), Rejection> {
        limits::RATE_LIMIT.check(self.limit)?;
        limits::RATE_WINDOW_MS.check(self.window_ms)
    }
}

/// The number of starts that count.
pub(crate) fn counted(starts: &[WindowSlice], now: Timestamp) -> u32 {
    let counted = starts.iter().filter(|starts| now < starts.until);
    counted.fold(0, |sum, starts| sum.saturating_add(starts.count))
}

/// Counts starts, if they are limited, and removes those that have left the window.
pub(crate) fn charge(
    starts: &mut Vec<WindowSlice>,
    rate: Option<Rate>,
    count: u32,
    now: Timestamp,
) {
    starts.retain(|starts| now < starts.until);
    let Some(rate) = rate.filter(|_| count > 0) else { return };
    let until = rate.counts_until(now);
    match starts.last_mut() {
        Some(last) if last.until >= until => last.count = last.count.saturating_add(count),
        _ => starts.push(WindowSlice { until, count }),
    }
}

/// When one more start is allowed beside `more` uncounted ones; none if it already is.
pub(crate) fn retry_at(
    starts: &[WindowSlice],
    rate: Rate,
    more: u32,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut left = counted(starts, now).saturating_add(more);
    if left < rate.limit {
        return None;
    }
    let ends = starts.iter().filter(|starts| now < starts.until).find(|starts| {
        left = left.saturating_sub(starts.count);
        left < rate.limit
    });
    ends.map(|starts| starts.until)
}
