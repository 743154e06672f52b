use serde::Serialize;
use thiserror::Error;

use crate::name::{LaneName, WaitpointId, WorkerId};
use crate::task::PublicState;

/// A rejected command. It changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Rejection {
    #[error("{field} {problem}")]
    Invalid { field: &'static str, problem: Problem },
    #[error("no such task")]
    TaskNotFound,
    #[error("no such lane; a lane is created with its first task")]
    LaneNotFound,
    #[error("this id, idempotency key or step number was used before for a different request")]
    Conflict,
    #[error("the lease is held under epoch {current}; this fence is stale")]
    StaleFence { current: u64 },
    #[error("the lease expired before this write")]
    LeaseExpired,
    #[error("the task is not leased")]
    NotLeased,
    #[error("this lease was already settled with a different result")]
    AlreadySettled,
    #[error("the task has ended as {state}; an ended task changes only by replay")]
    AlreadyTerminal { state: PublicState },
    #[error("the task has not ended; only an ended task can be replayed")]
    NotTerminal,
    #[error("the task is at execution {current}, not at the one to be replayed")]
    ExecutionMismatch { current: u32 },
    #[error("the task has used its {max} attempts")]
    AttemptsExhausted { max: u32 },
    #[error("the task has used its {max} replays")]
    ReplaysExhausted { max: u32 },
    #[error("lane {lane} accepts no new tasks: it is draining or disabled")]
    LaneClosed { lane: LaneName },
    #[error("lane {lane} has reached the limit of distinct routes")]
    TooManyRoutes { lane: LaneName },
    #[error("the task is {state}; only a waiting task can be granted to a worker")]
    NotWaiting { state: PublicState },
    #[error("the task is granted to worker {worker}")]
    GrantedToOther { worker: WorkerId },
    #[error("the task is not granted to this worker")]
    NotGranted,
    #[error("lane {lane} leases no tasks: it is paused or disabled")]
    LanePaused { lane: LaneName },
    #[error("lane {lane} has reached its concurrency limit of {limit}")]
    LaneFull { lane: LaneName, limit: u32 },
    #[error("the concurrency limit is reached, or another worker owns the session")]
    ConcurrencyLimitReached,
    #[error("a quota of lane {lane} or of its tenant is exceeded")]
    QuotaExceeded { lane: LaneName },
    #[error("this version cannot read a required {table} record; it is left unchanged")]
    Quarantined { table: &'static str },
    #[error("no such parent task")]
    ParentNotFound,
    #[error("the parent task has ended; it cannot have more children")]
    ParentTerminal,
    #[error("{open} children of the task have not ended; it cannot be deleted before them")]
    ChildrenOpen { open: u32 },
    #[error("the parent workflow has not ended; the task is deleted with it")]
    ParentOpen,
    #[error("this token is invalid")]
    TokenInvalid,
    #[error("this token has expired")]
    TokenExpired,
    #[error("this waitpoint is already completed")]
    WaitpointCompleted,
    #[error("the task has no waitpoint {id}")]
    WaitpointNotFound { id: WaitpointId },
    #[error("the task has reached the limit of {max} waitpoints")]
    TooManyWaitpoints { max: u32 },
    #[error("the mailbox is full: {messages} messages with {bytes} bytes")]
    MailboxFull { messages: u32, bytes: u64 },
    #[error("the task is not suspended; it is {state}")]
    NotSuspended { state: PublicState },
    #[error("the attempt has not begun, so it cannot be suspended")]
    NotBegun,
    #[error("this tenant has no signing key")]
    NoSigningKey,
    #[error("this tenant has reached the limit of {max} signing keys")]
    TooManySigningKeys { max: u32 },
    #[error("this idempotency key was used before for a different request")]
    IdempotencyConflict,
    #[error("the request under this idempotency key is in flight")]
    IdempotencyInFlight { retry_after_ms: u64 },
    #[error("the response under this idempotency key has expired")]
    IdempotencyExpired,
    #[error("this owner does not hold the request: it timed out or was released")]
    RequestLost,
    #[error("the rate limit is exceeded")]
    RateLimited { retry_after_ms: u64 },
    #[error("the effect was not claimed before the call")]
    EffectNotClaimed,
    #[error("the task is not a workflow")]
    NotAWorkflow,
    #[error("an ended workflow cannot be replayed; start another one with its input")]
    WorkflowNotReplayable,
    #[error("the history of the workflow has {turns} rows: this turn is not the next one")]
    TurnMismatch { turns: u32 },
    #[error("the workflow has no visible message {seq}")]
    MessageNotFound { seq: u64 },
}

/// The problem with a field.
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
    /// `allowed` are the characters that are accepted beside ASCII letters and digits.
    #[error("has a character other than ASCII letters, digits and {allowed}")]
    InvalidCharacters { allowed: &'static str },
    #[error("is outside {min} to {max}")]
    OutOfRange { min: i64, max: i64 },
    #[error("is named twice")]
    Repeated,
    #[error("is not a sequence of two-digit hexadecimal bytes")]
    InvalidHex,
    #[error("requires a timeout")]
    TimeoutRequired,
    #[error("is reserved for the engine")]
    Reserved,
    #[error("is not allowed for workflows")]
    NotForWorkflows,
    #[error("is not allowed for waitpoints")]
    NotForWaitpoints,
    #[error("is not a version such as 1.2.0")]
    InvalidVersion,
}

impl Rejection {
    /// The stable code of this rejection, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::Invalid { .. } => "invalid",
            Rejection::TaskNotFound => "task_not_found",
            Rejection::LaneNotFound => "lane_not_found",
            Rejection::Conflict => "conflict",
            Rejection::StaleFence { .. } => "stale_fence",
            Rejection::LeaseExpired => "lease_expired",
            Rejection::NotLeased => "not_leased",
            Rejection::AlreadySettled => "already_settled",
            Rejection::AlreadyTerminal { .. } => "already_terminal",
            Rejection::NotTerminal => "not_terminal",
            Rejection::ExecutionMismatch { .. } => "execution_mismatch",
            Rejection::AttemptsExhausted { .. } => "attempts_exhausted",
            Rejection::ReplaysExhausted { .. } => "replays_exhausted",
            Rejection::LaneClosed { .. } => "lane_closed",
            Rejection::TooManyRoutes { .. } => "too_many_routes",
            Rejection::NotWaiting { .. } => "not_waiting",
            Rejection::GrantedToOther { .. } => "granted_to_other",
            Rejection::NotGranted => "not_granted",
            Rejection::LanePaused { .. } => "lane_paused",
            Rejection::LaneFull { .. } => "lane_full",
            Rejection::ConcurrencyLimitReached => "concurrency_limit_reached",
            Rejection::QuotaExceeded { .. } => "quota_exceeded",
            Rejection::Quarantined { .. } => "quarantined",
            Rejection::ParentNotFound => "parent_not_found",
            Rejection::ParentTerminal => "parent_terminal",
            Rejection::ChildrenOpen { .. } => "children_open",
            Rejection::ParentOpen => "parent_open",
            Rejection::TokenInvalid => "token_invalid",
            Rejection::TokenExpired => "token_expired",
            Rejection::WaitpointCompleted => "waitpoint_completed",
            Rejection::WaitpointNotFound { .. } => "waitpoint_not_found",
            Rejection::TooManyWaitpoints { .. } => "too_many_waitpoints",
            Rejection::MailboxFull { .. } => "mailbox_full",
            Rejection::NotSuspended { .. } => "not_suspended",
            Rejection::NotBegun => "not_begun",
            Rejection::NoSigningKey => "no_signing_key",
            Rejection::TooManySigningKeys { .. } => "too_many_signing_keys",
            Rejection::IdempotencyConflict => "idempotency_conflict",
            Rejection::IdempotencyInFlight { .. } => "idempotency_in_flight",
            Rejection::IdempotencyExpired => "idempotency_expired",
            Rejection::RequestLost => "request_lost",
            Rejection::RateLimited { .. } => "rate_limited",
            Rejection::EffectNotClaimed => "effect_not_claimed",
            Rejection::NotAWorkflow => "not_a_workflow",
            Rejection::WorkflowNotReplayable => "workflow_not_replayable",
            Rejection::TurnMismatch { .. } => "turn_mismatch",
            Rejection::MessageNotFound { .. } => "message_not_found",
        }
    }
}
