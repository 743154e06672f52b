//! Workflows in scripts: random programs, the code that runs them, their expected outcomes, and
//! the operations of clients.
//!
//! They have a separate tenant, so that they share only the engine with the rest of a script.
//! Real workers run the code; the model sees every commit.

mod client;
mod expected;
mod generate;
mod interpreter;
mod plan;
mod worker;

pub(crate) use client::{MESSAGE_SOURCE, is_of_workflows, message};
pub(crate) use expected::expected;
pub(crate) use generate::{WorkflowWriter, strike};
pub(crate) use interpreter::definition;
pub(crate) use plan::TENANT;
pub use plan::{ActivityBehavior, Op, Plan, WorkflowOperation, WorkflowSpec};
pub(crate) use worker::worker;
