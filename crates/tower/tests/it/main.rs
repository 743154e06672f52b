//! The layer around a service of axum.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod answers;
mod layer;
