//! The invariants, written a second time and in another way than in core.
//!
//! The model reads the log as it grows, the records after every commit, the commands and answers
//! of clients, and the starts of handlers. It calls no transition. It derives the state of every
//! task and lane from the log alone, and judges everything else by that.

mod admit;
mod answer;
mod effect;
mod external_runtime;
mod external_runtime_lock;
mod external_runtime_mail;
mod facts;
mod family;
mod gate;
mod lease;
mod limiter;
mod log;
mod mail;
mod record;
mod refusal;
mod reply;
mod request;
mod retry;
mod state;
mod wait;
mod workers;
mod workflow;
mod workflow_end;
mod workflow_life;

pub(crate) use admit::{AdmitRequest, Giver};
pub(crate) use answer::{Asked, Fenced, Since};
pub(crate) use effect::{CallName, Made, Parent, Right};
pub(crate) use external_runtime::ExternalRuntime;
pub(crate) use facts::State;
pub(crate) use family::ORPHANED;
pub(crate) use log::OPERATOR;
pub(crate) use reply::SPOILT;
pub(crate) use state::Model;
pub(crate) use workflow::Workflows;
