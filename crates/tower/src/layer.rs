use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tower_layer::Layer;
use windlass_engine::Engine;

use crate::service::IdempotencyService;

/// The sender of a request. A stored response is only replayed to the same principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub tenant: String,
    pub name: String,
    /// An account or a session, where one principal sends for many; may be empty.
    pub account: String,
}

impl Principal {
    pub fn new(name: impl Into<String>) -> Self {
        Self { tenant: "default".to_owned(), name: name.into(), account: String::new() }
    }
}

type Identify = dyn Fn(&Parts) -> Option<Principal> + Send + Sync;

/// Makes non-safe HTTP requests idempotent by their `Idempotency-Key` header. `GET`, `HEAD`,
/// `OPTIONS` and `TRACE` pass through.
///
/// The fingerprint covers method, path, query and body. `nest`ed routers see a stripped path, so
/// apply the layer outside of `Router::nest`, or requests to different nests may collide.
///
/// Successful responses and `303 See Other` are stored with all headers, `Set-Cookie` included,
/// except hop-by-hop headers. Any other response releases the key, and a retry runs again.
///
/// TTLs, the policy for concurrent duplicates and the format of keys are set in the engine's
/// [`windlass_engine::RequestPolicy`].
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(crate) engine: Engine,
    pub(crate) identify: Arc<Identify>,
    pub(crate) is_required: bool,
    pub(crate) max_body_bytes: usize,
}

impl IdempotencyLayer {
    /// `identify` returns the principal of a request, from what the authentication layer left in
    /// its extensions or headers. A request without a principal is rejected.
    pub fn new(
        engine: Engine,
        identify: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static,
    ) -> Self {
        let max_body_bytes = 1_024 * 1_024;
        Self { engine, identify: Arc::new(identify), is_required: true, max_body_bytes }
    }

    /// Lets requests without a key pass through.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    /// The maximum length of a request or response body in bytes; the default is 1 MiB. A longer
    /// successful response is stored as the error `response_too_long`, so that the request does not
    /// run again. So is one of more than 4 MiB with its headers.
    #[must_use]
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut layer = f.debug_struct("IdempotencyLayer");
        layer.field("is_required", &self.is_required).field("max_body_bytes", &self.max_body_bytes);
        layer.finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, self.clone())
    }
}
