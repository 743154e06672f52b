use windlass_core::{Command, Row, Timestamp};

use crate::runner::Order;

/// One step of a run, the same for every store.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The time of the clock.
    pub(super) at: Timestamp,
    /// Which of its two handles a store is used through.
    pub(super) handle: usize,
    pub(super) command: Operation,
}

#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Commands decided and committed in one batch.
    Batch { commands: Vec<Command>, order: Order },
    /// A row that another version wrote.
    Plant(Row),
}
