//! What happens by itself: a page of everything whose time has come, one file per record type.

mod admission;
mod node;
mod queue;
mod run;
mod task;

pub use run::Sweep;
