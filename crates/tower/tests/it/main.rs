//! The layer around an axum service.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod layer;
mod responses;
