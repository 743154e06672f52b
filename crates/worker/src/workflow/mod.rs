//! Workflows: ordinary async code that is replayed over its history.
//!
//! A [`Program`] is the code; an [`Instance`] is one execution of it: it takes history rows and
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
mod deed;
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
mod program;
mod script;
mod signature;
mod state;
mod step;
pub mod testing;
mod timeout;

pub use activity::Activity;
pub use begin::{Begin, Info};
pub use cancelled::Cancelled;
pub use child::{Child, Detached};
pub use combine::{Either, Join, OneOf3, OneOf4, OneOf5, OneOf6, OneOf7, OneOf8, Select, TryJoin};
pub use context::{MOST_CARRIED, Workflow};
pub use deed::Deed;
pub use effect::{Calls, Effect};
pub use error::{StepError, TurnFailure};
pub use event::{Event, Queue};
pub(crate) use handed_over::HandedOver;
pub use instance::{Finished, Instance, Standing, Turn};
pub use local::Local;
pub use mail::Unread;
pub use name::{Unnamed, name_of};
pub use nondeterminism::{Doing, Nondeterminism};
pub use part::{BYTES_PER_ROW, MADE_PER_ROW, Part};
pub use program::Program;
pub use signature::Signature;
pub use state::{MOST_VALUES, STATUS_BYTES, VALUE_BYTES, VALUE_KEY_BYTES};
pub use step::Step;
