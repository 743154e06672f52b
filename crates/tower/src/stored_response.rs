//! The stored form of an HTTP response: a line of JSON, then the unchanged body.

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};
use windlass_core::Payload;

const CONTENT_TYPE: &str = "application/vnd.windlass.http-response";

/// Headers of the connection, not of the response.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

#[derive(Serialize, Deserialize)]
struct Head {
    status: u16,
    /// As bytes: a header value need not be text.
    headers: Vec<(String, Vec<u8>)>,
}

/// Encodes a response without its hop-by-hop headers.
pub(crate) fn encode(response: &Response<Bytes>) -> Payload {
    let headers = response.headers();
    // `Connection` may name more hop-by-hop headers.
    let named: Vec<String> = headers.get_all(CONNECTION).iter().flat_map(tokens).collect();
    let is_stored = |name: &str| !HOP_BY_HOP.contains(&name) && named.iter().all(|own| own != name);
    let stored = headers.iter().filter(|(name, _)| is_stored(name.as_str()));
    let headers =
        stored.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let head = Head { status: response.status().as_u16(), headers };
    let mut bytes = serde_json::to_vec(&head).expect("numbers and strings serialize");
    bytes.push(b'\n');
    bytes.extend_from_slice(response.body());
    Payload::new(CONTENT_TYPE, bytes)
}

fn tokens(value: &HeaderValue) -> Vec<String> {
    let text = value.to_str().unwrap_or_default();
    text.split(',').map(|token| token.trim().to_ascii_lowercase()).collect()
}

/// Decodes a stored response and marks it as replayed. None if the payload is not one.
pub(crate) fn decode(stored: &Payload) -> Option<Response<Bytes>> {
    let end = stored.bytes.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&stored.bytes[..end]).ok()?;
    let body = Bytes::copy_from_slice(&stored.bytes[end + 1..]);
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(head.status).ok()?;
    for (name, value) in head.headers {
        let name = HeaderName::try_from(name).ok()?;
        response.headers_mut().append(name, HeaderValue::from_bytes(&value).ok()?);
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_response_is_replayed_unchanged() {
        let body = Bytes::from_static(b"\xff\n{\"not\": json");
        let response = Response::builder()
            .status(201)
            .header("content-type", "application/octet-stream")
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("connection", "close")
            .header("x-strange", HeaderValue::from_bytes(b"caf\xe9").unwrap())
            .body(body.clone())
            .unwrap();
        let again = decode(&encode(&response)).unwrap();
        assert_eq!((again.status().as_u16(), again.headers().len()), (201, 5));
        assert_eq!(again.headers().get_all("set-cookie").iter().count(), 2);
        assert_eq!(again.headers()["x-strange"].as_bytes(), b"caf\xe9");
        assert_eq!(again.headers()[REPLAYED], "true");
        assert_eq!(again.into_body(), body);
        assert!(decode(&Payload::json("{}")).is_none());
    }
}
