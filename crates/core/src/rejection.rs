use serde::Serialize;
use thiserror::Error;

use crate::name::{LaneName, WaitpointId, WorkerId};
use crate::task::PublicState;

/// A refusal: an answer, not a fault. It leaves the world as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Rejection {
    #[error("{field} {problem}")]
    Invalid { field: &'static str, problem: Problem },
    #[error("no such task")]
    TaskNotFound,
    #[error("no such lane: it comes to be with its first task")]
    LaneNotFound,
    #[error("this id or idempotency key was used before for a different request")]
    Conflict,
    #[error("the lease is held under epoch {current}; this fence is stale")]
    Stale { current: u64 },
    #[error("the lease ran out before this write")]
    LeaseExpired,
    #[error("the task is not leased")]
    NotLeased,
    #[error("this lease was settled before, with something else")]
    SettledOtherwise,
    #[error("the task has ended as {state}; an ended task changes only by replay")]
    Ended { state: PublicState },
    #[error("the task has not ended; only an ended task can be replayed")]
    NotEnded,
    #[error("the task is at generation {current}, not at the one to be replayed")]
    OtherGeneration { current: u32 },
    #[error("the task has used its {max} attempts")]
    AttemptsExhausted { max: u32 },
    #[error("the task has used its {max} replays")]
    ReplaysExhausted { max: u32 },
    #[error("lane {lane} takes no tasks: it is draining or disabled")]
    LaneClosed { lane: LaneName },
    #[error("lane {lane} has as many distinct routes waiting as a lane may have")]
    TooManyRoutes { lane: LaneName },
    #[error("the task is {state}; only one that waits in its lane can be kept for a worker")]
    NotWaiting { state: PublicState },
    #[error("the task is kept for worker {worker}")]
    Kept { worker: WorkerId },
    #[error("the task is not kept for this worker")]
    NotGranted,
    #[error("lane {lane} hands no tasks out: it is paused or disabled")]
    LaneHandsOutNone { lane: LaneName },
    #[error("lane {lane} has handed out the {limit} tasks that it may at once")]
    LaneFull { lane: LaneName, limit: u32 },
    #[error("its gate lets nobody start it, or only the owner of its session")]
    GateShut,
    #[error("a quota of lane {lane} or of its tenant is spent")]
    QuotaSpent { lane: LaneName },
    #[error("a {table} record that this version cannot read stands in the way; it is kept as is")]
    Quarantined { table: &'static str },
    #[error("no such parent task")]
    ParentNotFound,
    #[error("the parent task has ended; it has no more children")]
    ParentEnded,
    #[error("{open} children of the task have not ended; it is kept as long as they are open")]
    ChildrenOpen { open: u32 },
    #[error("the workflow that waits for it has not ended; it goes with that one")]
    ParentOpen,
    #[error("this token opens nothing here")]
    TokenInvalid,
    #[error("this token has expired")]
    TokenExpired,
    #[error("this waitpoint has had its message")]
    WaitpointUsed,
    #[error("the task has no waitpoint {id}")]
    WaitpointNotFound { id: WaitpointId },
    #[error("the task has as many waitpoints as it may have: {max}")]
    TooManyWaitpoints { max: u32 },
    #[error("the mailbox is full: it holds {messages} messages with {bytes} bytes")]
    MailboxFull { messages: u32, bytes: u64 },
    #[error("the task is not suspended; it is {state}")]
    NotSuspended { state: PublicState },
    #[error("the attempt has not begun, so it cannot be suspended")]
    NotBegun,
    #[error("this tenant has no key to sign tokens with")]
    NoSigningKey,
    #[error("this tenant has as many keys as it may have: {max}")]
    TooManyKeys { max: u32 },
    #[error("this idempotency key was used before for a different request")]
    IdempotencyConflict,
    #[error("the request under this idempotency key is being worked on")]
    IdempotencyInFlight { retry_after_ms: u64 },
    #[error("the answer under this idempotency key is no longer kept")]
    IdempotencyExpired,
    #[error("the request is not this owner's to answer: it took too long, or was given up")]
    RequestReleased,
    #[error("more was asked for than is allowed in this time")]
    RateLimited { retry_after_ms: u64 },
    #[error("the call was not claimed before it was made")]
    EffectNotClaimed,
    #[error("the task is no workflow")]
    NotAWorkflow,
    #[error("a workflow that has ended does not start over: start another one with its input")]
    WorkflowEnded,
    #[error("the history of the workflow has {turns} rows: this is not the next one")]
    OtherTurn { turns: u32 },
    #[error("there is no message {seq} that the workflow could have been told of")]
    MessageNotFound { seq: u64 },
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    #[error("is empty")]
    Empty,
    #[error("is shorter than {min_bytes} bytes")]
    TooShort { min_bytes: u32 },
    #[error("is longer than {max_bytes} bytes")]
    TooLong { max_bytes: usize },
    #[error("has a control character")]
    ControlCharacter,
    #[error("has a character other than letters, digits and _ . : / - +")]
    NotAToken,
    #[error("has a character other than letters, digits and _ . : -")]
    NotAPlainKey,
    #[error("is outside {min} to {max}")]
    OutOfRange { min: i64, max: i64 },
    #[error("is named twice")]
    Repeated,
    #[error("has a character other than letters, digits and _ : -")]
    NotATokenPart,
    #[error("is not in pairs of hexadecimal digits")]
    NotHex,
    #[error("needs a time")]
    NoTime,
    #[error("is what only the engine says")]
    OfTheEngine,
    #[error("is not for workflows")]
    NotOfAWorkflow,
    #[error("is not a version as 1.2.0")]
    NotAVersion,
}

impl Rejection {
    /// The stable name of this refusal, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::Invalid { .. } => "invalid",
            Rejection::TaskNotFound => "task_not_found",
            Rejection::LaneNotFound => "lane_not_found",
            Rejection::Conflict => "conflict",
            Rejection::Stale { .. } => "stale",
            Rejection::LeaseExpired => "lease_expired",
            Rejection::NotLeased => "not_leased",
            Rejection::SettledOtherwise => "settled_otherwise",
            Rejection::Ended { .. } => "ended",
            Rejection::NotEnded => "not_ended",
            Rejection::OtherGeneration { .. } => "other_generation",
            Rejection::AttemptsExhausted { .. } => "attempts_exhausted",
            Rejection::ReplaysExhausted { .. } => "replays_exhausted",
            Rejection::LaneClosed { .. } => "lane_closed",
            Rejection::TooManyRoutes { .. } => "too_many_routes",
            Rejection::NotWaiting { .. } => "not_waiting",
            Rejection::Kept { .. } => "kept",
            Rejection::NotGranted => "not_granted",
            Rejection::LaneHandsOutNone { .. } => "lane_hands_out_none",
            Rejection::LaneFull { .. } => "lane_full",
            Rejection::GateShut => "gate_shut",
            Rejection::QuotaSpent { .. } => "quota_spent",
            Rejection::Quarantined { .. } => "quarantined",
            Rejection::ParentNotFound => "parent_not_found",
            Rejection::ParentEnded => "parent_ended",
            Rejection::ChildrenOpen { .. } => "children_open",
            Rejection::ParentOpen => "parent_open",
            Rejection::TokenInvalid => "token_invalid",
            Rejection::TokenExpired => "token_expired",
            Rejection::WaitpointUsed => "waitpoint_used",
            Rejection::WaitpointNotFound { .. } => "waitpoint_not_found",
            Rejection::TooManyWaitpoints { .. } => "too_many_waitpoints",
            Rejection::MailboxFull { .. } => "mailbox_full",
            Rejection::NotSuspended { .. } => "not_suspended",
            Rejection::NotBegun => "not_begun",
            Rejection::NoSigningKey => "no_signing_key",
            Rejection::TooManyKeys { .. } => "too_many_keys",
            Rejection::IdempotencyConflict => "idempotency_conflict",
            Rejection::IdempotencyInFlight { .. } => "idempotency_in_flight",
            Rejection::IdempotencyExpired => "idempotency_expired",
            Rejection::RequestReleased => "request_released",
            Rejection::RateLimited { .. } => "rate_limited",
            Rejection::EffectNotClaimed => "effect_not_claimed",
            Rejection::NotAWorkflow => "not_a_workflow",
            Rejection::WorkflowEnded => "workflow_ended",
            Rejection::OtherTurn { .. } => "other_turn",
            Rejection::MessageNotFound { .. } => "message_not_found",
        }
    }
}
