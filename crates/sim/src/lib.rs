//! A seeded simulation of the whole system: several engines and workers on one store, in
//! simulated time.
//!
//! A seed becomes a [`Script`]: the commands of clients, the behaviour of handlers, crashes,
//! stops and drains of nodes, faults of the store, changes of clocks. One thread plays the
//! script and schedules all nodes, so that the same seed gives the same run. Engine,
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
mod concurrency;
mod coverage;
mod driver;
mod external_runtime;
mod generate;
mod generate_requests;
mod handler;
mod messages;
mod model;
mod node;
mod outage;
mod ready;
mod recovery;
mod requests;
mod runner;
mod scenario;
mod script;
mod shrink;
mod simulation;
mod store;
mod trace;
mod violation;
mod watch;
mod workers;
mod workflow;

pub use coverage::{Coverage, CoverageEvent, REQUIRED};
pub use external_runtime::ExternalOperation;
pub use requests::{Handling, Holder};
pub use runner::{Tally, Until, run_seeds};
pub use script::{
    Action, Behavior, CAPABILITY, Fault, KINDS, LANES, NodeSpec, Operation, Point, ProcessFault,
    Script, Step, TaskSpec,
};
pub use simulation::{Report, Simulation};
pub use violation::{Kind, Violation};
pub use workflow::{ActivityBehavior, Op, Plan, WorkflowOperation, WorkflowSpec};
