use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tower_layer::Layer;
use windlass_engine::Engine;

use crate::service::Idempotency;

/// Who sends a request, and for whom: nobody gets the answer to what another one has asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub tenant: String,
    pub name: String,
    /// An account or a session, where one principal asks for many; or nothing.
    pub account: String,
}

impl Principal {
    pub fn new(name: impl Into<String>) -> Self {
        Self { tenant: "default".to_owned(), name: name.into(), account: String::new() }
    }
}

type Identify = dyn Fn(&Parts) -> Option<Principal> + Send + Sync;

/// Lets requests that change something take effect once. What they are called is in the header
/// `Idempotency-Key`; `GET`, `HEAD`, `OPTIONS` and `TRACE` pass as they are.
///
/// What is asked for is the method, the path with its query as this layer sees it, and the body.
/// Around a part of a service that sees shortened paths it cannot tell two parts apart: put it
/// around the whole.
///
/// Kept are answers of success, and `303 See Other`, with all headers, `Set-Cookie` among them, but
/// those of the connection. Everything else is given up, and is done again when it is sent again.
///
/// How long answers are kept, what races get and what keys look like is in the engine's
/// [`windlass_engine::RequestPolicy`].
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(crate) engine: Engine,
    pub(crate) identify: Arc<Identify>,
    pub(crate) is_required: bool,
    pub(crate) longest_body: usize,
}

impl IdempotencyLayer {
    /// `identify` says who sends a request, from what whoever checked its credentials has left in
    /// its extensions or headers. One of nobody is refused.
    pub fn new(
        engine: Engine,
        identify: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static,
    ) -> Self {
        let longest_body = 1_024 * 1_024;
        Self { engine, identify: Arc::new(identify), is_required: true, longest_body }
    }

    /// Lets requests without a key pass as they are.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    /// The longest body of a request or of an answer, in bytes; a mebibyte unless it is said. A
    /// longer answer of success is kept as an error, `answer_too_long`: what was done is not done
    /// again. So is one of more than four mebibytes with its headers.
    #[must_use]
    pub fn longest_body(mut self, bytes: usize) -> Self {
        self.longest_body = bytes;
        self
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut layer = f.debug_struct("IdempotencyLayer");
        layer.field("is_required", &self.is_required).field("longest_body", &self.longest_body);
        layer.finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency::new(inner, self.clone())
    }
}
