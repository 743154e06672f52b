use std::sync::Arc;

use crate::children::ChildCounts;
use crate::log::Cursor;
use crate::name::TaskId;
use crate::task::{Run, Settled, Task};
use crate::time::Timestamp;

/// The answer to an accepted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created(Vec<Created>),
    /// The tasks as they are under their new leases.
    Claimed(Vec<Arc<Task>>),
    Renewed {
        expires_at: Timestamp,
    },
    Begun(Run),
    Progressed,
    Settled(Settled),
    Cancelled,
    PriorityChanged,
    Replayed {
        generation: u32,
    },
    Reaped,
    LaneChanged,
    /// `next_due` is when to sweep again; none while nothing is due at any time.
    Swept {
        swept: usize,
        next_due: Option<Timestamp>,
    },
    /// `more` when a full page went and another may follow.
    Trimmed {
        trimmed: usize,
        more: bool,
    },
    /// `joined` when the node was not registered before; the rest is a hint about all nodes.
    Registered {
        joined: bool,
        nodes: usize,
        format: i64,
    },
    Left,
    /// No child is open: the lease stays.
    ChildrenDone(ChildCounts),
    QuotaSet,
    /// `running` of it still run where they are.
    SessionReleased {
        running: u32,
    },
    /// `joined` when the worker was not registered before.
    WorkerRegistered {
        joined: bool,
    },
    WorkerRetired,
    /// Kept for its worker until then.
    Granted {
        until: Timestamp,
    },
    Revoked,
    /// Where the bookmark stands.
    BookmarkAt(Cursor),
    /// `known` when there was one.
    BookmarkDropped {
        known: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub id: TaskId,
    /// It had been created before; `id` is that of the first.
    pub duplicate: bool,
}
