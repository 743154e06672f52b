//! The standard streams of a program, within limits.

use std::collections::VecDeque;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdin;
use windlass::{Payload, limits};

/// How much of the end of stderr is retained.
const LAST_BYTES: usize = 2_048;
const LAST_LINES: usize = 10;

/// Why the streams of a program were not read to their end.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// It printed more than can be stored.
    TooLong,
    Io(io::Error),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        StreamError::Io(error)
    }
}

/// Writes the payload to stdin. A program need not read it.
pub(crate) async fn write_payload(
    mut stdin: ChildStdin,
    payload: Option<&Payload>,
) -> Result<(), StreamError> {
    let Some(payload) = payload else { return Ok(()) };
    match stdin.write_all(&payload.bytes).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Reads stdout, up to the payload limit.
pub(crate) async fn output(stdout: impl AsyncRead + Unpin) -> Result<Vec<u8>, StreamError> {
    let most = limits::PAYLOAD_BYTES.max.unsigned_abs();
    let mut printed = Vec::new();
    stdout.take(most + 1).read_to_end(&mut printed).await?;
    if printed.len() as u64 > most { Err(StreamError::TooLong) } else { Ok(printed) }
}

/// Reads stderr and returns its last lines.
pub(crate) async fn stderr_tail(mut stderr: impl AsyncRead + Unpin) -> Result<String, StreamError> {
    let mut last = VecDeque::new();
    let mut buffer = [0; 4_096];
    loop {
        let read = stderr.read(&mut buffer).await?;
        if read == 0 {
            return Ok(last_lines(last.make_contiguous()));
        }
        last.extend(&buffer[..read]);
        last.drain(..last.len().saturating_sub(LAST_BYTES));
    }
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// The output as a result; none if it is empty.
pub(crate) fn result(printed: Vec<u8>) -> Option<Payload> {
    if printed.is_empty() {
        return None;
    }
    let content_type = if serde_json::from_slice::<serde_json::Value>(&printed).is_ok() {
        "application/json"
    } else if std::str::from_utf8(&printed).is_ok() {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    };
    Some(Payload::new(content_type, printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results() {
        for (printed, expected) in [
            (&b""[..], None),
            (b"{\"a\":1}\n", Some("application/json")),
            (b"7", Some("application/json")),
            (b"done\n", Some("text/plain; charset=utf-8")),
            (b"\n", Some("text/plain; charset=utf-8")),
            (b"\xff\xfe", Some("application/octet-stream")),
        ] {
            let result = result(printed.to_vec());
            assert_eq!(result.as_ref().map(|result| &*result.content_type), expected);
            assert_eq!(result.map_or(Vec::new(), |result| result.bytes.to_vec()), printed);
        }
    }

    #[tokio::test]
    async fn only_the_last_lines_of_stderr_are_retained() {
        let lines: Vec<String> = (0..5_000).map(|n| format!("line {n}")).collect();
        let text = lines.join("\n");
        let last = stderr_tail(text.as_bytes()).await.unwrap();
        assert_eq!(last.lines().count(), LAST_LINES);
        assert!(last.ends_with("line 4999"), "{last}");
        assert_eq!(stderr_tail(&b"one\n\n"[..]).await.unwrap(), "one");
        let long = "x".repeat(100_000);
        assert_eq!(stderr_tail(long.as_bytes()).await.unwrap().len(), LAST_BYTES);
        assert_eq!(stderr_tail(&b""[..]).await.unwrap(), "");
    }
}
