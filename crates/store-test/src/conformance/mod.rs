//! The store contract, case by case. Each case uses its own place and reports what it found.

mod case;
mod change;
mod children;
mod concurrency_limits;
mod context;
mod handle;
mod log;
mod messages;
mod newer_version;
mod payload;
mod query;
mod requests;
mod scan;
mod text;
mod time;
mod workers;
mod workflows;

pub use case::{CASES, Case, Verdict, Wrong, run, verdicts};
