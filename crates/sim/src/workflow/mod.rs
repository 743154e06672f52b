//! Workflows in scripts: random programs, the code that plays them, what they must come to, and
//! what clients do to them.
//!
//! They live in a tenant of their own, so that the rest of a script does not meet them but in the
//! engine. The code is run by real workers; the model sees every commit of theirs.

mod cast;
mod client;
mod expected;
mod generate;
mod plan;
mod player;

pub(crate) use cast::worker;
pub(crate) use client::{MESSAGE_SOURCE, is_of_workflows, message};
pub(crate) use expected::expected;
pub(crate) use generate::{Author, strike};
pub(crate) use plan::TENANT;
pub use plan::{Doing, Op, Plan, WorkflowSpec, WorkflowWish};
pub(crate) use player::definition;
