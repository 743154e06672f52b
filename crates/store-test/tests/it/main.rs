//! The suites on the in-memory store, and on deliberately broken stores.

mod broken;
mod fault;
mod suites;
