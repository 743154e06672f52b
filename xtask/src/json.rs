//! Values of a JSON object, as the benchmarks print it. Nested values are skipped.

/// The number under a key.
pub(crate) fn number_of(json: &str, key: &str) -> Option<f64> {
    let value = value_of(json, key)?;
    let end = value.find([',', '}', ' ', '\n']).unwrap_or(value.len());
    value[..end].parse().ok()
}

/// The text under a key; none if it has an escape, which no benchmark prints.
pub(crate) fn text_of<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (text, _) = value_of(json, key)?.strip_prefix('"')?.split_once('"')?;
    (!text.contains('\\')).then_some(text)
}

fn value_of<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (mut depth, mut rest) = (0, json);
    while let Some(at) = rest.find(['{', '}', '[', ']', '"']) {
        let (sign, behind) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = behind;
        match sign {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {
                let end = end_of_text(behind)?;
                rest = &behind[end + 1..];
                let value = rest.trim_start().strip_prefix(':');
                if let Some(value) = value.filter(|_| depth == 1 && behind[..end] == *key) {
                    return Some(value.trim_start());
                }
            }
        }
    }
    None
}

/// The end of the text that begins here.
fn end_of_text(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_name() {
        let json = "{\"cycles_per_s\": 1234.5,\"p50_ms\":2e-1, \"batch\" : 3 ,\"none\":null\n}";
        for (key, expected) in [
            ("cycles_per_s", Some(1234.5)),
            ("p50_ms", Some(0.2)),
            ("batch", Some(3.0)),
            ("none", None),
            ("p50", None),
        ] {
            assert_eq!(number_of(json, key), expected, "{key}");
        }
    }

    #[test]
    fn nested_values_are_skipped() {
        let json = r#"{"a":{"n":1,"m":[{"n":2}]},"l":[3],"t":"\"n\":4 }","n":5,"z":{"q":6}}"#;
        for (key, expected) in [("n", Some(5.0)), ("m", None), ("q", None)] {
            assert_eq!(number_of(json, key), expected, "{key}");
        }
    }

    #[test]
    fn texts_are_read_by_name() {
        let json = r#"{"durability": "wal, synchronous=FULL","odd":"a \" b", "n":1}"#;
        for (key, expected) in
            [("durability", Some("wal, synchronous=FULL")), ("odd", None), ("n", None)]
        {
            assert_eq!(text_of(json, key), expected, "{key}");
        }
    }
}
