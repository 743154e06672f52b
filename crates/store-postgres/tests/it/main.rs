//! Tests specific to this store: the database, its tables, and its failures.

#![allow(clippy::unwrap_used, reason = "a test fails on unexpected values")]

mod claims;
mod family;
mod format;
mod log;
mod nodes;
mod outcomes;
mod pgbouncer;
mod plans;
mod proxy;
mod reads;
mod registry;
mod rejections;
mod sessions;
mod stage;
mod suites;
mod tls;
mod workers;
