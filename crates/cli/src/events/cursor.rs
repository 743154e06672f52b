use windlass::Cursor;

/// A cursor as it is printed and parsed.
pub(super) fn written(cursor: &Cursor) -> String {
    format!("{}:{}", cursor.incarnation, cursor.seq)
}

pub(super) fn parse(text: &str) -> Result<Cursor, String> {
    let parts = text.rsplit_once(':');
    let number = parts.and_then(|(incarnation, seq)| Some((incarnation, seq.parse().ok()?)));
    match number {
        Some((incarnation, seq)) if !incarnation.is_empty() => {
            Ok(Cursor { incarnation: incarnation.to_owned(), seq })
        }
        _ => Err("a cursor is INCARNATION:NUMBER, as an earlier call has printed it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_as_it_is_printed() {
        let cursor = Cursor { incarnation: "0199-ab".into(), seq: 17 };
        assert_eq!(parse(&written(&cursor)), Ok(cursor));
        for text in ["", "17", ":17", "a:", "a:-1", "a:b"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
