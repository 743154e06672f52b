use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of an engine since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches committed, including those without changes.
    pub batches: u64,
    pub commands: u64,
    /// Decision rounds, over all batches.
    pub rounds: u64,
    /// Batch attempts that failed with a conflict.
    pub conflicts: u64,
    /// Batches split after conflicts or after a command that the store rejected.
    pub splits: u64,
    pub sweeps: u64,
    /// History rows read, for example to replay workflows.
    pub history_rows: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) splits: AtomicU64,
    pub(crate) sweeps: AtomicU64,
    pub(crate) history_rows: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            batches: read(&self.batches),
            commands: read(&self.commands),
            rounds: read(&self.rounds),
            conflicts: read(&self.conflicts),
            splits: read(&self.splits),
            sweeps: read(&self.sweeps),
            history_rows: read(&self.history_rows),
        }
    }
}
