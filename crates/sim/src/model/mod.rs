//! The invariants, written a second time and in another way than in core.
//!
//! The model reads the log as it grows, the records after every commit, the commands and answers
//! of clients, and the starts of handlers. It calls no transition. It derives the state of every
//! task and lane from the log alone, and judges everything else by that.

mod children;
mod concurrency_limit;
mod create_request;
mod effect;
mod external_runtime;
mod external_runtime_lock;
mod external_runtime_mailbox;
mod facts;
mod idempotent_request;
mod lease;
mod limiter;
mod log;
mod mailbox;
mod outcome;
mod record;
mod rejection;
mod retry;
mod state;
mod suspension;
mod wait_outcome;
mod workers;
mod workflow;
mod workflow_execution;
mod workflow_outcome;

pub(crate) use children::ORPHANED;
pub(crate) use effect::{CallName, Invocation, Parent, Right};
pub(crate) use external_runtime::ExternalRuntime;
pub(crate) use facts::State;
pub(crate) use idempotent_request::{AdmitRequest, Responder};
pub(crate) use log::OPERATOR;
pub(crate) use outcome::{Fenced, Since, Submission};
pub(crate) use state::Model;
pub(crate) use wait_outcome::SPOILT;
pub(crate) use workflow::Workflows;
