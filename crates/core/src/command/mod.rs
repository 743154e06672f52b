//! One file per command: its fields, its transition and its table of tests.

mod abandon_turn;
mod admit;
mod begin;
mod cancel;
mod cancel_held;
mod change_priority;
mod claim;
mod claim_effect;
mod claim_granted;
mod clear_sticky;
mod commit_turn;
mod complete;
mod complete_and_commit_turn;
mod complete_request;
mod complete_waitpoint;
mod consume_messages;
mod create;
mod create_waitpoint;
mod delete_subscription;
mod delete_task;
mod deregister_node;
mod deregister_worker;
mod drop_activity;
mod fail;
mod grant;
mod heartbeat_node;
mod limit_lane;
mod move_subscription_cursor;
mod outcome;
mod prune_executions;
mod register_worker;
mod release;
mod release_request;
mod release_session;
mod renew;
mod renew_sessions;
mod replay;
mod report_progress;
mod request_cancel;
mod resume;
mod revoke;
mod rotate_signing_key;
mod runtime_metadata;
mod send_messages;
mod set_lane_state;
mod set_quota;
mod settle_effect;
mod snooze;
mod spend;
mod suspend;
mod sweep;
mod trim_log;
mod wait_children;
mod workflow_command;

pub use abandon_turn::AbandonTurn;
pub use admit::Admit;
pub use begin::Begin;
pub use cancel::Cancel;
pub use cancel_held::CancelHeld;
pub use change_priority::ChangePriority;
pub use claim::Claim;
pub use claim_effect::ClaimEffect;
pub use claim_granted::ClaimGranted;
pub use clear_sticky::ClearSticky;
pub use commit_turn::{CommitTurn, TurnEnd};
pub use complete::Complete;
pub use complete_and_commit_turn::CompleteAndCommitTurn;
pub use complete_request::CompleteRequest;
pub use complete_waitpoint::CompleteWaitpoint;
pub use consume_messages::ConsumeMessages;
pub use create::{Create, Delay, IdempotencyWindow, NewTask, NewWorkflow};
pub use create_waitpoint::{CreateWaitpoint, NewWaitpoint};
pub use delete_subscription::DeleteSubscription;
pub use delete_task::DeleteTask;
pub use deregister_node::DeregisterNode;
pub use deregister_worker::DeregisterWorker;
pub use drop_activity::DropActivity;
pub use fail::Fail;
pub use grant::Grant;
pub use heartbeat_node::HeartbeatNode;
pub use limit_lane::LimitLane;
pub use move_subscription_cursor::MoveSubscriptionCursor;
pub use outcome::{Created, CreatedWaitpoint, Outcome};
pub use prune_executions::PruneExecutions;
pub use register_worker::RegisterWorker;
pub use release::Release;
pub use release_request::ReleaseRequest;
pub use release_session::ReleaseSession;
pub use renew::Renew;
pub use renew_sessions::RenewSessions;
pub use replay::Replay;
pub use report_progress::ReportProgress;
pub use request_cancel::RequestCancel;
pub use resume::Resume;
pub use revoke::Revoke;
pub use rotate_signing_key::RotateSigningKey;
pub use runtime_metadata::RuntimeMetadata;
pub use send_messages::SendMessages;
pub use set_lane_state::SetLaneState;
pub use set_quota::{QuotaScope, SetQuota};
pub use settle_effect::SettleEffect;
pub use snooze::Snooze;
pub use spend::{Charge, Spend};
pub use suspend::{Suspend, SuspendTimeout};
pub use sweep::Sweep;
pub use trim_log::TrimLog;
pub use wait_children::WaitChildren;
pub use workflow_command::{OnReject, WorkflowCommand};

use crate::limits;
pub use crate::new_message::{IfAbsent, MailboxLimit, NewMessage, SentMessage};
use crate::rejection::Rejection;
use crate::world::{Halt, World};

/// The result of a transition.
pub(crate) type Transition = Result<Outcome, Halt>;

/// The result of [`decide`].
#[derive(Debug, PartialEq)]
pub enum Decided {
    Ready(Result<Outcome, Rejection>),
    /// Rows are not loaded yet. Nothing was changed; decide again once they are.
    Parked,
}

macro_rules! commands {
    ($($Name:ident),*) => {
        /// A command of a caller, a worker or the engine itself.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant, reason = "it is moved once, into its batch")]
        pub enum Command { $($Name($Name)),* }

        $(impl From<$Name> for Command {
            fn from(command: $Name) -> Self {
                Command::$Name(command)
            }
        })*

        impl Command {
            pub const fn name(&self) -> &'static str {
                match self { $(Command::$Name(_) => stringify!($Name)),* }
            }

            fn apply(&self, world: &mut World) -> Transition {
                match self { $(Command::$Name(command) => command.apply(world)),* }
            }
        }
    };
}

commands!(
    Create,
    Claim,
    Renew,
    Begin,
    ReportProgress,
    Complete,
    Fail,
    Snooze,
    Release,
    CancelHeld,
    Cancel,
    ChangePriority,
    Replay,
    DeleteTask,
    SetLaneState,
    LimitLane,
    Sweep,
    TrimLog,
    HeartbeatNode,
    DeregisterNode,
    WaitChildren,
    SetQuota,
    ReleaseSession,
    RegisterWorker,
    DeregisterWorker,
    Grant,
    ClaimGranted,
    Revoke,
    MoveSubscriptionCursor,
    DeleteSubscription,
    Admit,
    CompleteRequest,
    ReleaseRequest,
    ClaimEffect,
    SettleEffect,
    CommitTurn,
    CompleteAndCommitTurn,
    RequestCancel,
    PruneExecutions,
    ClearSticky,
    Spend,
    SendMessages,
    CompleteWaitpoint,
    CreateWaitpoint,
    Suspend,
    Resume,
    ConsumeMessages,
    RotateSigningKey,
    AbandonTurn,
    DropActivity,
    RenewSessions
);

/// Decides one command against the world. Every change of state goes through here.
pub fn decide(world: &mut World, command: &Command) -> Decided {
    world.begin_command();
    match command.apply(world) {
        Ok(outcome) => {
            world.accept();
            Decided::Ready(Ok(outcome))
        }
        Err(Halt::Rejected(rejection)) => {
            world.reject();
            Decided::Ready(Err(rejection))
        }
        Err(Halt::Parked) => {
            world.park();
            Decided::Parked
        }
    }
}

/// Runs a command only to record the rows it lacks: for one that waits for an earlier command.
pub fn probe(world: &mut World, command: &Command) {
    world.begin_command();
    // The result is unused: the command is decided again after the one it waits for.
    let _ = command.apply(world);
    world.abandon();
}

impl Command {
    /// Commands that settle or renew a lease, or all leases of a worker, are decided before
    /// commands that start work.
    pub const fn is_urgent(&self) -> bool {
        match self {
            Command::Renew(_)
            | Command::Begin(_)
            | Command::Complete(_)
            | Command::Fail(_)
            | Command::Snooze(_)
            | Command::Release(_)
            | Command::CancelHeld(_)
            | Command::WaitChildren(_)
            | Command::RegisterWorker(_)
            | Command::CompleteRequest(_)
            | Command::ReleaseRequest(_)
            | Command::SettleEffect(_)
            | Command::CommitTurn(_)
            | Command::AbandonTurn(_)
            | Command::DropActivity(_)
            | Command::RenewSessions(_)
            | Command::CompleteAndCommitTurn(_)
            | Command::Suspend(_) => true,
            Command::Create(_)
            | Command::Claim(_)
            | Command::ReportProgress(_)
            | Command::Cancel(_)
            | Command::RequestCancel(_)
            | Command::ChangePriority(_)
            | Command::Replay(_)
            | Command::DeleteTask(_)
            | Command::PruneExecutions(_)
            | Command::ClearSticky(_)
            | Command::SetLaneState(_)
            | Command::LimitLane(_)
            | Command::Sweep(_)
            | Command::TrimLog(_)
            | Command::HeartbeatNode(_)
            | Command::DeregisterNode(_)
            | Command::SetQuota(_)
            | Command::ReleaseSession(_)
            | Command::DeregisterWorker(_)
            | Command::Grant(_)
            | Command::ClaimGranted(_)
            | Command::Revoke(_)
            | Command::MoveSubscriptionCursor(_)
            | Command::DeleteSubscription(_)
            | Command::SendMessages(_)
            | Command::CompleteWaitpoint(_)
            | Command::CreateWaitpoint(_)
            | Command::Resume(_)
            | Command::ConsumeMessages(_)
            | Command::Admit(_)
            | Command::ClaimEffect(_)
            | Command::Spend(_)
            | Command::RotateSigningKey(_) => false,
        }
    }

    /// Approximate number of rows written.
    pub fn rows(&self) -> usize {
        match self {
            Command::Create(create) => create.tasks.len(),
            Command::Claim(claim) => claim.limit.min(limits::CLAIM_TASKS.max as u32) as usize,
            Command::Sweep(sweep) => sweep.page as usize,
            Command::SendMessages(send) => 2 * send.messages.len(),
            Command::ConsumeMessages(take) => take.seqs.len(),
            Command::ClearSticky(clear) => clear.workflows.len(),
            Command::CommitTurn(turn) => turn.rows(),
            Command::CompleteAndCommitTurn(complete_and_commit) => {
                2 + complete_and_commit.turn.rows()
            }
            _ => 1,
        }
    }

    /// Payload bytes carried.
    pub fn bytes(&self) -> usize {
        match self {
            Command::Create(create) => {
                let payloads = create.tasks.iter().filter_map(|task| task.payload.as_ref());
                payloads.map(|payload| payload.bytes.len()).sum()
            }
            Command::CommitTurn(turn) => turn.bytes(),
            Command::CompleteAndCommitTurn(complete_and_commit) => {
                complete_and_commit.complete.bytes() + complete_and_commit.turn.bytes()
            }
            Command::CompleteRequest(complete) => complete.response.bytes.len(),
            Command::SettleEffect(settle) => settle.result.bytes.len(),
            Command::Complete(complete) => complete.bytes(),
            Command::SendMessages(send) => {
                send.messages.iter().map(NewMessage::carried_bytes).sum()
            }
            Command::CompleteWaitpoint(complete) => {
                complete.payload.as_ref().map_or(0, |payload| payload.bytes.len())
            }
            _ => 0,
        }
    }
}
