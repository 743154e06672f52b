//! Durations as people write and read them: `250ms 10s 5m 2h 1d`.

use std::time::Duration;

use thiserror::Error;
use windlass::Timestamp;
use windlass_store::{Clock as _, SystemClock};

const UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

#[derive(Debug, Error, PartialEq, Eq)]
#[error("a duration is a number and ms, s, m, h or d, as in 250ms, 10s, 5m or 1h30m")]
pub(crate) struct BadDuration;

pub(crate) fn parse(text: &str) -> Result<Duration, BadDuration> {
    let mut rest = text;
    let mut total_ms: u64 = 0;
    if rest.is_empty() {
        return Err(BadDuration);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(BadDuration)?;
        let (number, tail) = rest.split_at(digits);
        let unit_length = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_length);
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(BadDuration)?;
        let number: u64 = number.parse().map_err(|_| BadDuration)?;
        let ms = number.checked_mul(*unit_ms).ok_or(BadDuration)?;
        total_ms = total_ms.checked_add(ms).ok_or(BadDuration)?;
        rest = tail;
    }
    Ok(Duration::from_millis(total_ms))
}

/// The two largest units that are not zero, which is enough for people.
pub(crate) fn brief(ms: u64) -> String {
    let largest = UNITS.iter().rposition(|(_, unit_ms)| ms >= *unit_ms).unwrap_or(0);
    let (name, unit_ms) = UNITS[largest];
    let (whole, rest_ms) = (ms / unit_ms, ms % unit_ms);
    match largest.checked_sub(1).map(|next| UNITS[next]) {
        // Milliseconds beside whole seconds are noise.
        Some((next, next_ms)) if next_ms > 1 && rest_ms / next_ms > 0 => {
            format!("{whole}{name}{}{next}", rest_ms / next_ms)
        }
        _ => format!("{whole}{name}"),
    }
}

/// The distance of a timestamp from now: `3m ago`, `in 5s`.
pub(crate) fn distance(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        return format!("in {}", brief(now.ms_until(at)));
    }
    match at.ms_until(now) {
        0..1_000 => "just now".to_owned(),
        ms => format!("{} ago", brief(ms)),
    }
}

/// A timestamp in UTC, and its distance from now.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{at} ({})", distance(at, now))
}

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, expected) in [
            ("250ms", Some(250)),
            ("10s", Some(10_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("1h30m", Some(5_400_000)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("s", None),
            ("-5s", None),
            ("1.5h", None),
            ("5 m", None),
            ("5min", None),
            ("1h30", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
            ("5é", None),
        ] {
            let found = parse(text).ok().map(|duration| duration.as_millis());
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn durations_are_shown_in_two_units() {
        for (ms, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_999, "1s"),
            (61_000, "1m1s"),
            (120_000, "2m"),
            (3_600_000, "1h"),
            (5_430_000, "1h30m"),
            (90_000_000, "1d1h"),
            (86_400_000, "1d"),
            (86_460_000, "1d"),
        ] {
            assert_eq!(brief(ms), expected, "{ms} ms");
            assert!(parse(expected).is_ok());
        }
    }

    #[test]
    fn distances() {
        let now = Timestamp::from_millis(100_000);
        for (ms, expected) in [
            (100_000, "just now"),
            (99_500, "just now"),
            (40_000, "1m ago"),
            (105_000, "in 5s"),
            (100_001, "in 1ms"),
        ] {
            assert_eq!(distance(Timestamp::from_millis(ms), now), expected);
        }
    }
}
