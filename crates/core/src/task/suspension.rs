use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::WaitpointId;
use crate::task::{Paused, Run};
use crate::time::Timestamp;

/// A task that waits until a condition over its mailbox holds, or until a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub since: Timestamp,
    pub reason: SuspendReason,
    pub condition: Condition,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// When nobody had answered in time and it was passed on to an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated_at: Option<Timestamp>,
    pub paused: Paused,
}

impl Suspension {
    /// How a workflow waits between its turns.
    pub(crate) fn until_mail(run: &Run, now: Timestamp) -> Self {
        Self {
            since: now,
            reason: SuspendReason::StepBoundary,
            condition: Condition::Mail,
            timeout: None,
            escalated_at: None,
            paused: run.paused(now),
        }
    }
}

/// What must be in the mailbox for a task to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// One message.
    Signal(Matcher),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// So many messages, each from another waitpoint, of another name or from another source.
    Count {
        n: u32,
        distinct: Distinct,
        #[serde(default)]
        of: Matcher,
    },
    /// Only an operator resumes it.
    Operator,
    /// Only its timeout ends it.
    Timeout,
    /// Anything at all, also what the engine tells: how a workflow waits.
    Mail,
}

/// Which messages count. What is not said may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matcher {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waitpoint: Option<WaitpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What messages that are counted must differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distinct {
    Waitpoints,
    Names,
    Sources,
}

/// When a suspension ends by itself, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout {
    pub at: Timestamp,
    pub then: OnTimeout,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The attempt has failed; the retry policy says what follows.
    #[default]
    Fail,
    Cancel,
    Expire,
    /// The task goes on, with a message that says so.
    Resume,
    /// It goes on waiting, for an operator as well.
    Escalate,
}

/// Why a task is suspended, for people and for filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendReason {
    #[default]
    Signal,
    Approval,
    Callback,
    ToolResult,
    OperatorReview,
    Policy,
    Budget,
    StepBoundary,
    Manual,
}

impl SuspendReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            SuspendReason::Signal => "signal",
            SuspendReason::Approval => "approval",
            SuspendReason::Callback => "callback",
            SuspendReason::ToolResult => "tool_result",
            SuspendReason::OperatorReview => "operator_review",
            SuspendReason::Policy => "policy",
            SuspendReason::Budget => "budget",
            SuspendReason::StepBoundary => "step_boundary",
            SuspendReason::Manual => "manual",
        }
    }
}

/// What let a task go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    pub at: Timestamp,
    pub cause: ResumeCause,
    /// The numbers of the messages that satisfied its condition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<u64>,
    /// The request to suspend that was answered with this, so that its repeat is as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<SuspendRequest>,
}

/// Tells one request to suspend from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendRequest {
    pub epoch: u64,
    pub nth: u32,
    pub digest: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeCause {
    Signals,
    Timeout,
    Operator,
    Children,
}
