//! Tests specific to this store: the file, its format, and its failures.

#![allow(clippy::unwrap_used, reason = "a test fails on unexpected values")]

mod fixture;
mod format;
mod full;
mod life;
mod outcome;
mod schema;
mod sharing;
mod suites;
mod unfinished;
