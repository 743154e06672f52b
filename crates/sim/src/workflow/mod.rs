//! Workflows in scripts: random programs, the code that runs them, their expected outcomes, and
//! the wishes of clients.
//!
//! They have a separate tenant, so that they share only the engine with the rest of a script.
//! Real workers run the code; the model sees every commit.

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
