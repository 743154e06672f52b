use windlass_core::{Command, Row, Timestamp};

use crate::runner::Order;

/// One step of a run, the same for every store.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// What the clock shows.
    pub(super) at: Timestamp,
    /// Which of its two handles a store is used by.
    pub(super) handle: usize,
    pub(super) deed: Deed,
}

#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// Commands decided in one world and committed together.
    Batch { commands: Vec<Command>, order: Order },
    /// Something that another version wrote.
    Plant(Row),
}
