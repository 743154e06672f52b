use std::fmt;

use windlass_core::FailureClass;

use super::nondeterminism::Nondeterminism;

/// Why an await of a workflow failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// An activity or a child has failed for good.
    Failed { name: String, class: FailureClass, reason: String },
    /// The total timeout of the step has passed.
    Expired { name: String },
    /// Cancellation of the workflow is requested.
    Cancelled { reason: String },
    /// The timeout set by the code has passed.
    TimedOut,
    /// The result or message does not decode to the expected type.
    Undecodable { name: String, reason: String },
    /// The request is invalid.
    Rejected { name: String, reason: String },
}

impl StepError {
    pub(super) fn rejected(name: &str, reason: impl fmt::Display) -> Self {
        Self::Rejected { name: name.to_owned(), reason: reason.to_string() }
    }

    /// The failure class of a workflow that returns this error.
    pub fn class(&self) -> FailureClass {
        match self {
            StepError::Failed { class, .. } => *class,
            StepError::Expired { .. } | StepError::TimedOut => FailureClass::Timeout,
            StepError::Cancelled { .. } => FailureClass::Cancelled,
            StepError::Undecodable { .. } | StepError::Rejected { .. } => FailureClass::Permanent,
        }
    }

    pub fn is_cancelled(&self) -> bool {
        matches!(self, StepError::Cancelled { .. })
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepError::Failed { name, class, reason } => {
                write!(f, "`{name}` failed ({}): {reason}", class.as_str())
            }
            StepError::Expired { name } => write!(f, "`{name}` exceeded its total timeout"),
            StepError::Cancelled { reason } => write!(f, "cancelled: {reason}"),
            StepError::TimedOut => f.write_str("the wait timed out"),
            StepError::Undecodable { name, reason } => {
                write!(f, "the value of `{name}` does not decode: {reason}")
            }
            StepError::Rejected { name, reason } => write!(f, "`{name}` was rejected: {reason}"),
        }
    }
}

impl std::error::Error for StepError {}

/// Why a turn cannot be committed. The history is unchanged; the code has to be replayed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnFailure {
    Nondeterminism(Nondeterminism),
    Panicked {
        text: String,
    },
    /// The code awaits something other than a workflow operation.
    NonWorkflowAwait,
    /// Its futures wake each other endlessly.
    BusyLoop,
}

impl From<Nondeterminism> for TurnFailure {
    fn from(found: Nondeterminism) -> Self {
        Self::Nondeterminism(found)
    }
}

impl fmt::Display for TurnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TurnFailure::Nondeterminism(found) => found.fmt(f),
            TurnFailure::Panicked { text } => write!(f, "the workflow's code panicked: {text}"),
            TurnFailure::NonWorkflowAwait => f.write_str(
                "the workflow's code awaits something that a workflow cannot await: no \
                 pending operation of the workflow can wake it. I/O, clocks and runtime tasks \
                 belong in an activity or in ctx.local_activity(..)",
            ),
            TurnFailure::BusyLoop => f.write_str(
                "the workflow's code never blocks: its futures wake each other endlessly \
                 within one turn",
            ),
        }
    }
}

impl std::error::Error for TurnFailure {}
