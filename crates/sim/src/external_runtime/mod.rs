//! Workflows of an external runtime in scripts: clients send messages to them, receive messages,
//! commit or return turns, and do the activities of turns, some of them bound to an affinity
//! lock.
//!
//! They have a separate tenant, like the workflows of Windlass's own runtime.

mod client;
mod finish;
mod generate;
mod operation;

pub(crate) use client::{is_external_runtime, made_by};
pub(crate) use finish::finish;
pub(crate) use generate::ExternalRuntimeWriter;
pub use operation::ExternalOperation;
pub(crate) use operation::{SENDER, TENANT};
