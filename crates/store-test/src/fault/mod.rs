//! A store with injectable faults.

mod pause;
mod script;
mod store;

pub use pause::Pause;
pub use script::{Call, CrashPoint, Failure};
pub use store::FaultStore;
