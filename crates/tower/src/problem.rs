//! Errors as problem documents of RFC 9457.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use windlass_core::Rejection;
use windlass_engine::Error;

/// Why a request is not answered by the service behind.
#[derive(Debug)]
pub(crate) enum Problem {
    KeyMissing,
    KeyUnreadable,
    NobodyAsks,
    BodyTooLong,
    BodyUnreadable,
    /// What is kept cannot be read.
    AnswerUnreadable,
    Refused(Error),
}

/// What helps: another request, the same one later, or nothing.
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
            Problem::NobodyAsks => "principal_unknown",
            Problem::BodyTooLong => "body_too_long",
            Problem::BodyUnreadable => "body_unreadable",
            Problem::AnswerUnreadable => "answer_unreadable",
            Problem::Refused(Error::Rejected(Rejection::Invalid { .. })) => {
                "idempotency_key_invalid"
            }
            Problem::Refused(error) => error.code(),
        }
    }

    fn detail(&self) -> String {
        match self {
            Problem::KeyMissing => "the header Idempotency-Key is required here".into(),
            Problem::KeyUnreadable => "the header Idempotency-Key is no plain text".into(),
            Problem::NobodyAsks => "nobody is known to send this request".into(),
            Problem::BodyTooLong => "the body is longer than it may be".into(),
            Problem::BodyUnreadable => "the body ended before its time".into(),
            Problem::AnswerUnreadable => "the answer that was kept cannot be read".into(),
            Problem::Refused(error) => error.to_string(),
        }
    }

    fn kind(&self) -> (StatusCode, Recovery) {
        let bad = (StatusCode::BAD_REQUEST, Recovery::Correctable);
        match self {
            Problem::KeyMissing | Problem::KeyUnreadable | Problem::BodyUnreadable => bad,
            Problem::NobodyAsks => (StatusCode::UNAUTHORIZED, Recovery::Correctable),
            Problem::BodyTooLong => (StatusCode::PAYLOAD_TOO_LARGE, Recovery::Correctable),
            Problem::AnswerUnreadable => (StatusCode::INTERNAL_SERVER_ERROR, Recovery::Terminal),
            Problem::Refused(Error::Rejected(rejection)) => match rejection {
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
                // It took too long: whoever sends it again gets what comes of it.
                _ => (StatusCode::CONFLICT, Recovery::Transient),
            },
            Problem::Refused(_) => (StatusCode::SERVICE_UNAVAILABLE, Recovery::Transient),
        }
    }

    /// In whole seconds, and never too soon.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Problem::Refused(Error::Rejected(
                Rejection::IdempotencyInFlight { retry_after_ms }
                | Rejection::RateLimited { retry_after_ms },
            )) => Some(retry_after_ms.div_ceil(1_000).max(1)),
            Problem::Refused(error) if !matches!(error, Error::Rejected(_)) => Some(1),
            _ => None,
        }
    }

    pub(crate) fn answer(&self) -> Response<Full<Bytes>> {
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
        let mut answer = Response::new(Full::new(Bytes::from(document.to_string())));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}
