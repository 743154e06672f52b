//! What the contract leaves to this store: the database, its tables, and what can go wrong with it.

#![allow(clippy::unwrap_used, reason = "a test may end at any surprise")]

mod claims;
mod family;
mod log;
mod nodes;
mod outcomes;
mod pgbouncer;
mod plans;
mod proxy;
mod reads;
mod refusals;
mod registry;
mod sessions;
mod stage;
mod suites;
mod tls;
mod workers;
