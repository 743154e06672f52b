//! What the contract leaves to this store: the file, its format, and what can go wrong with it.

#![allow(clippy::unwrap_used, reason = "a test may end at any surprise")]

mod doubt;
mod fixture;
mod format;
mod full;
mod life;
mod schema;
mod sharing;
mod suites;
mod unfinished;
