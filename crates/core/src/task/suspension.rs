use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::WaitpointId;
use crate::task::{ActiveAttempt, SuspendedAttempt};
use crate::time::Timestamp;

/// A suspension of a task until a condition over its mailbox is met, or until a timeout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub since: Timestamp,
    pub reason: SuspendReason,
    pub condition: Condition,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// When the timeout passed and the decision was left to an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated_at: Option<Timestamp>,
    pub suspended_attempt: SuspendedAttempt,
}

impl Suspension {
    /// The suspension of a workflow between its turns.
    pub(crate) fn until_message(attempt: &ActiveAttempt, now: Timestamp) -> Self {
        Self {
            since: now,
            reason: SuspendReason::StepBoundary,
            condition: Condition::AnyMessage,
            timeout: None,
            escalated_at: None,
            suspended_attempt: attempt.to_suspended(now),
        }
    }
}

/// The condition over the mailbox that resumes a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// One message.
    Signal(Matcher),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// `n` messages with different waitpoints, names or sources.
    Count {
        n: u32,
        distinct: Distinct,
        #[serde(default)]
        of: Matcher,
    },
    /// Only an operator resumes the task.
    Operator,
    /// Only the timeout ends the suspension.
    Timeout,
    /// Any visible message, including those of the engine: the condition of a waiting workflow.
    AnyMessage,
}

/// Selects messages. An absent field matches any value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matcher {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waitpoint: Option<WaitpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// The property in which counted messages must differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distinct {
    Waitpoints,
    Names,
    Sources,
}

/// The timeout of a suspension, and its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout {
    pub at: Timestamp,
    pub action: OnTimeout,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The attempt fails, and the retry policy applies.
    #[default]
    Fail,
    Cancel,
    Expire,
    /// The task is resumed with a `timeout` message.
    Resume,
    /// The suspension continues, and an operator may end it.
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

/// Why and when a task was last resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    pub at: Timestamp,
    pub cause: ResumeCause,
    /// The sequence numbers of the messages that met its condition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<u64>,
    /// The suspend request that was answered with this, so that a repeat gets the same response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<SuspendRequest>,
}

/// The identity of a suspend request.
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
