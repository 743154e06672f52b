//! Payloads and results for people and for programs.

use serde_json::{Value, json};
use windlass::Payload;

use crate::output::printable;

/// Longer payloads are shown by their size only.
const MOST_SHOWN: usize = 16 * 1_024;

/// Longer payloads are shown by their size in tables.
const MOST_BRIEF: usize = 60;

/// Formatted JSON, plain text, or the size of anything else.
pub(crate) fn readable(payload: &Payload) -> String {
    let size = format!("{} bytes of {}", payload.bytes.len(), payload.content_type);
    if payload.bytes.len() > MOST_SHOWN {
        return size;
    }
    match as_json(payload) {
        Some(value) => printable(&format!("{value:#}")),
        None => match as_text(payload) {
            Some(text) => printable(text),
            None => size,
        },
    }
}

/// A table cell: JSON and text if they are short, otherwise the size.
pub(crate) fn brief(payload: &Payload) -> String {
    let text = match as_json(payload) {
        Some(value) => Some(value.to_string()),
        None => as_text(payload).map(str::to_owned),
    };
    match text.filter(|text| text.len() <= MOST_BRIEF && !text.contains('\n')) {
        Some(text) => printable(&text),
        None => format!("{} bytes of {}", payload.bytes.len(), payload.content_type),
    }
}

pub(crate) fn payload_json(payload: &Payload) -> Value {
    let mut fields = json!({ "content_type": payload.content_type, "bytes": payload.bytes.len() });
    if let Some(value) = as_json(payload) {
        fields["json"] = value;
    } else if let Ok(text) = std::str::from_utf8(&payload.bytes) {
        fields["text"] = json!(text);
    }
    fields
}

fn as_json(payload: &Payload) -> Option<Value> {
    payload.content_type.contains("json").then(|| serde_json::from_slice(&payload.bytes).ok())?
}

/// The bytes as text, if they are printable.
fn as_text(payload: &Payload) -> Option<&str> {
    let text = std::str::from_utf8(&payload.bytes).ok()?;
    let binary = |c: char| c.is_control() && !"\n\r\t".contains(c);
    (!text.is_empty() && !text.contains(binary)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_readable() {
        let long = "x".repeat(MOST_SHOWN + 1);
        for (content_type, bytes, expected) in [
            ("application/json", &br#"{"a":1}"#[..], "{\n  \"a\": 1\n}"),
            ("application/json", b"{broken", "{broken"),
            ("text/plain", b"two\nlines", "two\nlines"),
            ("text/plain", b"", "0 bytes of text/plain"),
            ("image/png", b"\x89PNG\0", "5 bytes of image/png"),
            ("text/plain", b"\x1b[2J", "4 bytes of text/plain"),
            ("text/plain", long.as_bytes(), "16385 bytes of text/plain"),
        ] {
            assert_eq!(readable(&Payload::new(content_type, bytes)), expected);
        }
    }

    #[test]
    fn payloads_are_brief_in_tables() {
        let long = "x".repeat(MOST_BRIEF + 1);
        for (content_type, bytes, expected) in [
            ("application/json", &br#"{ "a": 1 }"#[..], r#"{"a":1}"#),
            ("text/plain", b"yes", "yes"),
            ("text/plain", b"two\nlines", "9 bytes of text/plain"),
            ("text/plain", long.as_bytes(), "61 bytes of text/plain"),
            ("image/png", b"\x89PNG\0", "5 bytes of image/png"),
        ] {
            assert_eq!(brief(&Payload::new(content_type, bytes)), expected);
        }
    }

    #[test]
    fn payloads_are_json_for_programs() {
        let json = payload_json(&Payload::json("[1]"));
        assert_eq!(json["json"], json!([1]));
        assert_eq!(payload_json(&Payload::new("text/plain", &b"hi"[..]))["text"], "hi");
        let binary = payload_json(&Payload::new("image/png", &b"\xff\xfe"[..]));
        assert_eq!(binary, json!({ "content_type": "image/png", "bytes": 2 }));
    }
}
