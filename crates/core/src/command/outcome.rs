use std::sync::Arc;

use crate::children::ChildCounts;
use crate::log::Cursor;
use crate::name::{IdempotencyKey, TaskId, WaitpointId};
use crate::new_message::SentMessage;
use crate::payload::PayloadKey;
use crate::task::{ActiveAttempt, Resumption, Settled, Task};
use crate::time::Timestamp;
use crate::token::Token;

/// The result of an accepted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created(Vec<Created>),
    /// The tasks under their new leases.
    Claimed(Vec<Arc<Task>>),
    Renewed {
        expires_at: Timestamp,
    },
    Begun(ActiveAttempt),
    ProgressReported,
    Settled(Settled),
    Cancelled,
    PriorityChanged,
    Replayed {
        execution: u32,
    },
    TaskDeleted,
    /// `more` when a page was deleted and another may follow.
    Pruned {
        pruned: usize,
        more: bool,
    },
    /// How many of them were sticky to this worker.
    StickyCleared {
        workflows: usize,
    },
    LaneChanged,
    /// `next_due` is when to sweep again; `None` while nothing is due at any time.
    Swept {
        swept: usize,
        next_due: Option<Timestamp>,
    },
    /// `more` when a full page was deleted and another may follow.
    Trimmed {
        trimmed: usize,
        more: bool,
    },
    /// `joined` when the node was not registered before; the rest is a hint about all nodes.
    NodeRegistered {
        joined: bool,
        nodes: usize,
        format: i64,
    },
    NodeDeregistered,
    /// No child is open: the lease stays.
    ChildrenDone(ChildCounts),
    QuotaSet,
    /// `running` of its tasks are still running on their workers.
    SessionReleased {
        running: u32,
    },
    /// How many locks were renewed.
    SessionsRenewed {
        renewed: usize,
    },
    /// `joined` when the worker was not registered before. `lost` leases were revoked because the
    /// worker does not hold them; a later heartbeat may revoke more.
    WorkerRegistered {
        joined: bool,
        lost: usize,
    },
    WorkerDeregistered,
    /// Granted to its worker until then.
    Granted {
        until: Timestamp,
    },
    Revoked,
    /// The position of the cursor.
    SubscriptionCursorAt(Cursor),
    /// `existed` when there was one.
    SubscriptionDeleted {
        existed: bool,
    },
    Sent(Vec<SentMessage>),
    WaitpointCreated(CreatedWaitpoint),
    /// The lease has ended; the waitpoints were created with the suspension.
    Suspended {
        waitpoints: Vec<CreatedWaitpoint>,
    },
    /// The condition is already met: the lease stays.
    AlreadySatisfied(Resumption),
    Resumed,
    /// How many of the messages still existed.
    Consumed {
        consumed: usize,
    },
    /// The caller owns the request and has to complete it before `until`.
    Admitted {
        until: Timestamp,
    },
    /// Where the response of the request is stored.
    RequestCompleted(PayloadKey),
    RequestReleased,
    /// `existed` when it was claimed before, so that the call may have been made. `result` is where
    /// its result is stored.
    EffectClaimed {
        request_id: IdempotencyKey,
        existed: bool,
        result: Option<PayloadKey>,
    },
    EffectSettled,
    /// The eager activities leased with the turn; and the workflow, if its lease stays.
    TurnCommitted {
        claimed: Vec<Arc<Task>>,
        lease_kept: Option<Arc<Task>>,
    },
    Spent,
    /// `unchanged` when nothing had to change.
    SigningKeyRotated {
        unchanged: bool,
    },
}

/// A waitpoint with its token, which is returned here and not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedWaitpoint {
    pub id: WaitpointId,
    pub token: Token,
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub id: TaskId,
    /// It was created before; `id` is that of the first.
    pub duplicate: bool,
}
