//! Workflows: ordinary async code that is replayed over its history.
//!
//! A [`WorkflowDefinition`] is the code; an [`Instance`] is one execution of it: it takes history
//! rows and inputs, and returns workflow commands and the state of the execution. Only local
//! activities use a clock, a runtime or, for external calls, an engine. Code does everything
//! durable through its [`Workflow`].

mod activity;
mod cancellation;
mod carryover;
mod child;
mod combine;
mod context;
mod definition;
mod effect;
mod error;
mod execution_start;
mod future_set;
mod instance;
mod local;
mod local_activity;
mod name;
mod nondeterminism;
mod planned_command;
mod replay_cursor;
mod replay_state;
mod signal;
mod signature;
mod state;
mod step;
pub mod testing;
mod timeout;
mod turn_part;
mod unread_signal;

pub use activity::Activity;
pub use cancellation::Cancellation;
pub(crate) use carryover::Carryover;
pub use child::{Child, DetachedWorkflow};
pub use combine::{Either, Join, OneOf3, OneOf4, OneOf5, OneOf6, OneOf7, OneOf8, Select, TryJoin};
pub use context::{MAX_CARRIED_SIGNALS, Workflow};
pub use definition::WorkflowDefinition;
pub use effect::{Effect, EffectAccess};
pub use error::{StepError, TurnFailure};
pub use execution_start::{ExecutionStart, Info};
pub use instance::{CompletedTurn, ExecutionState, Instance, TurnProgress};
pub use local::Local;
pub use local_activity::LocalActivity;
pub use name::{AnonymousFunction, name_of};
pub use nondeterminism::{Nondeterminism, ReplayStep};
pub use planned_command::PlannedCommand;
pub use signal::{SignalStream, SignalWait};
pub use signature::Signature;
pub use state::{MAX_VALUES, STATUS_BYTES, VALUE_BYTES, VALUE_KEY_BYTES};
pub use step::Step;
pub use turn_part::{BYTES_PER_ROW, COMMANDS_PER_ROW, TurnPart};
pub use unread_signal::UnreadSignal;
