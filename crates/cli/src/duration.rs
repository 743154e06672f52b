use std::time::Duration;

/// Reads a duration as people write it: a number and a unit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("a duration is a number with a unit: 500ms, 30s, 5m, 2h, 1d".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a duration starts with a number".to_owned())?;
    let ms = number.checked_mul(unit_ms).ok_or("this is too long")?;
    Ok(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("500ms", Some(500)),
            ("0s", Some(0)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("30", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("1 s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(parse(text).ok(), ms.map(Duration::from_millis), "{text}");
        }
    }
}
