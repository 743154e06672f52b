//! Idempotency for any tower service, on any store of Windlass.
//!
//! A request that carries an `Idempotency-Key` takes effect once. Whoever sends it again gets the
//! answer of the first time, byte for byte, with the header `Idempotency-Replayed: true`; also
//! after the process was restarted, and from another node. Only successes are kept: what failed
//! can be sent again. Start at [`IdempotencyLayer`].

mod answer;
mod layer;
mod problem;
mod service;

pub use layer::{IdempotencyLayer, Principal};
pub use service::Idempotency;
