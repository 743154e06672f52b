//! The store contract, case by case. Each case uses its own place and reports what it found.

mod case;
mod change;
mod context;
mod family;
mod foreign;
mod gates;
mod handle;
mod log;
mod mail;
mod payload;
mod query;
mod requests;
mod scan;
mod text;
mod time;
mod workers;
mod workflows;

pub use case::{CASES, Case, Verdict, Wrong, run, verdicts};
