//! What every store does, case by case. A case has a place of its own and says what it saw.

mod case;
mod change;
mod family;
mod foreign;
mod gates;
mod ground;
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
