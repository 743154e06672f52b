//! HTTP idempotency for any tower service, on any Windlass store.
//!
//! A request with an `Idempotency-Key` takes effect once. A retry gets the response of the first
//! request, byte for byte, with the header `Idempotency-Replayed: true`; also after a restart, and
//! from another node. Only successes are stored: a failed request can be sent again. Start at
//! [`IdempotencyLayer`].

mod layer;
mod problem;
mod service;
mod stored_response;

pub use layer::{IdempotencyLayer, Principal};
pub use service::IdempotencyService;
