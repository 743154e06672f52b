//! Workflows: ordinary async code that is replayed over its history.
//!
//! A [`WorkflowDefinition`] is the code; an [`Instance`] is one execution of it: it takes history rows and
//! inputs, and returns workflow commands and the state of the execution. Only local activities use
//! a clock, a runtime or, for external calls, an engine. Code does everything durable through its
//! [`Workflow`].

mod activity;
mod execution_start;
mod cancelled;
mod child;
mod combine;
mod context;
mod future_set;
mod effect;
mod error;
mod signal;
mod carryover;
mod instance;
mod replay_state;
mod local;
mod unread_signal;
mod name;
mod nondeterminism;
mod turn_part;
mod planned_command;
mod definition;
mod replay_cursor;
mod signature;
mod state;
mod step;
pub mod testing;
mod timeout;

pub use activity::Activity;
pub use execution_start::{ExecutionStart, Info};
pub use cancelled::Cancelled;
pub use child::{Child, DetachedWorkflow};
pub use combine::{Either, Join, OneOf3, OneOf4, OneOf5, OneOf6, OneOf7, OneOf8, Select, TryJoin};
pub use context::{MAX_CARRIED_SIGNALS, Workflow};
pub use effect::{Calls, Effect};
pub use error::{StepError, TurnFailure};
pub use signal::{SignalStream, SignalWait};
pub(crate) use carryover::Carryover;
pub use instance::{CompletedTurn, ExecutionState, Instance, TurnProgress};
pub use local::Local;
pub use unread_signal::UnreadSignal;
pub use name::{AnonymousFunction, name_of};
pub use nondeterminism::{Nondeterminism, ReplayStep};
pub use turn_part::{BYTES_PER_ROW, MADE_PER_ROW, TurnPart};
pub use planned_command::PlannedCommand;
pub use definition::WorkflowDefinition;
pub use signature::Signature;
pub use state::{MOST_VALUES, STATUS_BYTES, VALUE_BYTES, VALUE_KEY_BYTES};
pub use step::Step;
