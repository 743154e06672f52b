//! What the contract leaves to this store: the database, its tables, and what can go wrong with it.

#![allow(clippy::unwrap_used, reason = "a test may end at any surprise")]

mod nodes;
mod proxy;
mod rules;
mod suites;
