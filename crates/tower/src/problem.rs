//! Errors as problem documents (RFC 9457).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use windlass_core::{Rejection, limits};
use windlass_engine::Error;

/// Why a request is not answered by the inner service.
#[derive(Debug)]
pub(crate) enum Problem {
    KeyMissing,
    KeyUnreadable,
    UnknownPrincipal,
    BodyTooLong,
    BodyUnreadable,
    /// The request took effect, but its response is too long to store.
    ResponseTooLong,
    /// The response body of the service was truncated.
    ResponseTruncated,
    /// The stored response cannot be decoded.
    ResponseUnreadable,
    Engine(Error),
}

/// What helps: a corrected request, a retry, or nothing.
#[derive(Clone, Copy)]
enum Recovery {
    Correctable,
    Transient,
    Terminal,
}

impl Problem {
    fn code(&self) -> &'static str {
        match self {
            Problem::KeyMissing => "idempotency_key_missing",
            Problem::KeyUnreadable => "idempotency_key_invalid",
            Problem::UnknownPrincipal => "principal_unknown",
            Problem::BodyTooLong => "body_too_long",
            Problem::BodyUnreadable => "body_unreadable",
            Problem::ResponseUnreadable => "response_unreadable",
            Problem::ResponseTooLong => "response_too_long",
            Problem::ResponseTruncated => "response_truncated",
            Problem::Engine(Error::Rejected(Rejection::Invalid { field, .. }))
                if *field == limits::IDEMPOTENCY_KEY.field =>
            {
                "idempotency_key_invalid"
            }
            Problem::Engine(error) => error.code(),
        }
    }

    fn detail(&self) -> String {
        match self {
            Problem::KeyMissing => "the header Idempotency-Key is required here".into(),
            Problem::KeyUnreadable => "the header Idempotency-Key is not plain text".into(),
            Problem::UnknownPrincipal => "the sender of this request is not authenticated".into(),
            Problem::BodyTooLong => "the body exceeds the maximum length".into(),
            Problem::BodyUnreadable => "the body was truncated".into(),
            Problem::ResponseUnreadable => "the stored response cannot be decoded".into(),
            Problem::ResponseTooLong => "the response exceeds the maximum length".into(),
            Problem::ResponseTruncated => "the response was truncated".into(),
            // Details of the store are not exposed to clients.
            Problem::Engine(Error::Store(_)) => "the request store is unavailable".into(),
            Problem::Engine(error) => error.to_string(),
        }
    }

    fn kind(&self) -> (StatusCode, Recovery) {
        let bad = (StatusCode::BAD_REQUEST, Recovery::Correctable);
        let bug = (StatusCode::INTERNAL_SERVER_ERROR, Recovery::Terminal);
        match self {
            Problem::KeyMissing | Problem::KeyUnreadable | Problem::BodyUnreadable => bad,
            Problem::UnknownPrincipal => (StatusCode::UNAUTHORIZED, Recovery::Correctable),
            Problem::BodyTooLong => (StatusCode::PAYLOAD_TOO_LARGE, Recovery::Correctable),
            Problem::ResponseUnreadable | Problem::ResponseTooLong => bug,
            Problem::ResponseTruncated => (StatusCode::INTERNAL_SERVER_ERROR, Recovery::Transient),
            Problem::Engine(Error::Rejected(rejection)) => match rejection {
                Rejection::Invalid { .. } => bad,
                Rejection::IdempotencyConflict => {
                    (StatusCode::UNPROCESSABLE_ENTITY, Recovery::Correctable)
                }
                Rejection::IdempotencyInFlight { .. } => {
                    (StatusCode::CONFLICT, Recovery::Transient)
                }
                Rejection::IdempotencyExpired => (StatusCode::GONE, Recovery::Terminal),
                Rejection::RateLimited { .. } => {
                    (StatusCode::TOO_MANY_REQUESTS, Recovery::Transient)
                }
                Rejection::Quarantined { .. } => bug,
                // The request took too long: a retry gets its result.
                _ => (StatusCode::CONFLICT, Recovery::Transient),
            },
            Problem::Engine(Error::TooLarge) => {
                (StatusCode::PAYLOAD_TOO_LARGE, Recovery::Correctable)
            }
            Problem::Engine(Error::Bug { .. } | Error::Payload(_)) => bug,
            Problem::Engine(_) => (StatusCode::SERVICE_UNAVAILABLE, Recovery::Transient),
        }
    }

    /// In whole seconds, rounded up.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Problem::Engine(Error::Rejected(
                Rejection::IdempotencyInFlight { retry_after_ms }
                | Rejection::RateLimited { retry_after_ms },
            )) => Some(retry_after_ms.div_ceil(1_000).max(1)),
            Problem::ResponseTruncated => Some(1),
            // Transient errors without a known delay.
            Problem::Engine(error) if !matches!(error, Error::Rejected(_)) => {
                matches!(self.kind().1, Recovery::Transient).then_some(1)
            }
            _ => None,
        }
    }

    pub(crate) fn to_response(&self) -> Response<Bytes> {
        let (status, recovery) = self.kind();
        let retry_after = self.retry_after();
        let recovery = match recovery {
            Recovery::Correctable => "correctable",
            Recovery::Transient => "transient",
            Recovery::Terminal => "terminal",
        };
        let mut document = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("error"),
            "status": status.as_u16(),
            "detail": self.detail(),
            "code": self.code(),
            "recovery": recovery,
        });
        if let Some(seconds) = retry_after {
            document["retry_after"] = json!(seconds);
        }
        let mut response = Response::new(Bytes::from(document.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
