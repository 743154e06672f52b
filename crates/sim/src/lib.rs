//! A seeded simulation of the whole system: several engines and workers on one store, in
//! simulated time.
//!
//! A seed becomes a [`Script`]: the commands of clients, the behaviour of handlers, crashes,
//! stops and retirements of nodes, faults of the store, changes of clocks. One thread plays the
//! script and alone decides who runs when, so that the same seed gives the same run. Engine,
//! worker and core are the real ones; the store is the in-memory one. A separate model reads the
//! log, the records and the answers, and reports which rule was broken.
//!
//! It proves nothing about SQLite or a disk: these, including crashes of processes, are tested
//! with the stores. Start at [`Simulation`].
//!
//! ```
//! use windlass_sim::Simulation;
//!
//! let report = Simulation::from_seed(7).run().unwrap_or_else(|violation| panic!("{violation}"));
//! assert!(report.events > 0);
//! ```

mod bank;
mod client;
mod clock;
mod coverage;
mod driver;
mod external_runtime;
mod gates;
mod generate;
mod handler;
mod heal;
mod many;
mod model;
mod node;
mod outage;
mod pleas;
mod ready;
mod requests;
mod scene;
mod script;
mod shrink;
mod simulation;
mod staff;
mod store;
mod trace;
mod violation;
mod waiting;
mod watch;
mod workflow;

pub use coverage::{Coverage, Happening, REQUIRED};
pub use external_runtime::ForeignWish;
pub use many::{Tally, Until, run_many};
pub use requests::{Handling, Holder};
pub use script::{
    Action, Behavior, CAPABILITY, Fate, KINDS, LANES, Mishap, NodeSpec, Point, Script, Step,
    TaskSpec, Wish,
};
pub use simulation::{Report, Simulation};
pub use violation::{Kind, Violation};
pub use workflow::{Doing, Op, Plan, WorkflowSpec, WorkflowWish};
