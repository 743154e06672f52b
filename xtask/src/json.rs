//! Values of a flat JSON object on one line, as the benchmarks print it.

/// The number under a key.
pub(crate) fn number_of(json: &str, key: &str) -> Option<f64> {
    let value = value_of(json, key)?;
    let end = value.find([',', '}', ' ', '\n']).unwrap_or(value.len());
    value[..end].parse().ok()
}

/// The text under a key; none if it holds an escape, which no benchmark prints.
pub(crate) fn text_of<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (text, _) = value_of(json, key)?.strip_prefix('"')?.split_once('"')?;
    (!text.contains('\\')).then_some(text)
}

fn value_of<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{key}\""))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
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
    fn texts_are_read_by_name() {
        let json = r#"{"durability": "wal, synchronous=FULL","odd":"a \" b", "n":1}"#;
        for (key, expected) in
            [("durability", Some("wal, synchronous=FULL")), ("odd", None), ("n", None)]
        {
            assert_eq!(text_of(json, key), expected, "{key}");
        }
    }
}
