//! Workflows: ordinary async code that is replayed over its history.
//!
//! A [`WorkflowDefinition`] is the code; an [`Instance`] is one execution of it: it takes history rows and
//! inputs, and returns workflow commands and the state of the execution. Only local activities use
//! a clock, a runtime or, for external calls, an engine. Code does everything durable through its
//! [`Workflow`].

mod activity;
mod begin;
mod cancelled;
mod child;
mod combine;
mod context;
mod crowd;
mod effect;
mod error;
mod event;
mod handed_over;
mod instance;
mod journal;
mod local;
mod mail;
mod name;
mod nondeterminism;
mod part;
mod planned_command;
mod program;
mod script;
mod signature;
mod state;
mod step;
pub mod testing;
mod timeout;

pub use activity::Activity;
pub use begin::{ExecutionStart, Info};
pub use cancelled::Cancelled;
pub use child::{Child, DetachedWorkflow};
pub use combine::{Either, Join, OneOf3, OneOf4, OneOf5, OneOf6, OneOf7, OneOf8, Select, TryJoin};
pub use context::{MAX_CARRIED_SIGNALS, Workflow};
pub use effect::{Calls, Effect};
pub use error::{StepError, TurnFailure};
pub use event::{SignalStream, SignalWait};
pub(crate) use handed_over::Carryover;
pub use instance::{CompletedTurn, ExecutionState, Instance, TurnProgress};
pub use local::Local;
pub use mail::UnreadSignal;
pub use name::{AnonymousFunction, name_of};
pub use nondeterminism::{Nondeterminism, ReplayStep};
pub use part::{BYTES_PER_ROW, MADE_PER_ROW, TurnPart};
pub use planned_command::PlannedCommand;
pub use program::WorkflowDefinition;
pub use signature::Signature;
pub use state::{MOST_VALUES, STATUS_BYTES, VALUE_BYTES, VALUE_KEY_BYTES};
pub use step::Step;
