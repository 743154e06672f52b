use std::sync::Arc;

use crate::children::ChildCounts;
use crate::log::Cursor;
use crate::name::{IdempotencyKey, TaskId, WaitpointId};
use crate::payload::PayloadKey;
use crate::task::{Resumption, Run, Settled, Task};
use crate::time::Timestamp;
use crate::token::Token;

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
    /// `more` when a page went and another may follow.
    Pruned {
        pruned: usize,
        more: bool,
    },
    /// How many were asked of this worker first.
    Unstuck {
        workflows: usize,
    },
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
    /// How many locks were renewed.
    SessionsRenewed {
        renewed: usize,
    },
    /// `joined` when the worker was not registered before. `lost` of its leases were ended, because
    /// it does not hold them; there may be more.
    WorkerRegistered {
        joined: bool,
        lost: usize,
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
    Posted(Vec<Posted>),
    WaitpointMade(MadeWaitpoint),
    /// The lease has ended; the waitpoints are those that were made with the suspension.
    Suspended {
        waitpoints: Vec<MadeWaitpoint>,
    },
    /// What was to be waited for is there: the lease goes on.
    AlreadySatisfied(Resumption),
    Resumed,
    /// How many messages were still there to be taken.
    Taken {
        taken: usize,
    },
    /// Whoever asked is the one to answer, in time.
    Admitted {
        until: Timestamp,
    },
    /// Where the answer of the request is.
    Answered(PayloadKey),
    Withdrawn,
    /// `known` when it was claimed before, so that the call may have been made. `answer` is where
    /// what came of it is.
    EffectClaimed {
        request_id: IdempotencyKey,
        known: bool,
        answer: Option<PayloadKey>,
    },
    EffectSettled,
    /// The activities that were leased at once; and the workflow, if its lease stays.
    Turned {
        claimed: Vec<Arc<Task>>,
        goes_on: Option<Arc<Task>>,
    },
    Spent,
    /// `known` when nothing had to be done for it.
    KeyRotated {
        known: bool,
    },
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub task: TaskId,
    /// Its place in the mailbox.
    pub seq: u64,
    /// It had been posted before; `seq` is that of the first.
    pub duplicate: bool,
    /// The task waited and goes on: for this message, or for one before it that has become visible.
    pub resumed: bool,
    /// There is no such task yet: it is kept for a while, for the workflow that is started.
    pub kept: bool,
}

/// A waitpoint with its token, which can be had only here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeWaitpoint {
    pub id: WaitpointId,
    pub token: Token,
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub id: TaskId,
    /// It had been created before; `id` is that of the first.
    pub duplicate: bool,
}
