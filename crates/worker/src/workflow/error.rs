use std::fmt;

use windlass_core::FailureClass;

use super::nondeterminism::Nondeterminism;

/// Why an await of a workflow brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// An activity or a child has failed for good.
    Failed { name: String, class: FailureClass, reason: String },
    /// Its total time was over.
    Expired { name: String },
    /// The workflow is asked to end.
    Cancelled { reason: String },
    /// It did not come in the time that the code gave it.
    TimedOut,
    /// What came is not what the code takes it for.
    Undecodable { name: String, reason: String },
    /// It cannot be asked for.
    Refused { name: String, reason: String },
}

impl StepError {
    pub(super) fn refused(name: &str, reason: impl fmt::Display) -> Self {
        Self::Refused { name: name.to_owned(), reason: reason.to_string() }
    }

    /// How a workflow fails that passes it on.
    pub fn class(&self) -> FailureClass {
        match self {
            StepError::Failed { class, .. } => *class,
            StepError::Expired { .. } | StepError::TimedOut => FailureClass::Timeout,
            StepError::Cancelled { .. } => FailureClass::Cancelled,
            StepError::Undecodable { .. } | StepError::Refused { .. } => FailureClass::Permanent,
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
            StepError::Expired { name } => write!(f, "`{name}` was not done in its time"),
            StepError::Cancelled { reason } => write!(f, "cancelled: {reason}"),
            StepError::TimedOut => f.write_str("it did not come in time"),
            StepError::Undecodable { name, reason } => {
                write!(f, "what came of `{name}` does not decode: {reason}")
            }
            StepError::Refused { name, reason } => write!(f, "`{name}` is refused: {reason}"),
        }
    }
}

impl std::error::Error for StepError {}

/// Why a turn cannot be committed. The history is as it was; the code has to be built up again
/// from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnFailure {
    Nondeterminism(Nondeterminism),
    Panicked {
        text: String,
    },
    /// It awaits, and nothing that a workflow can await is under way.
    ForeignAwait,
    /// Its futures wake each other without an end.
    Restless,
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
            TurnFailure::ForeignAwait => f.write_str(
                "the workflow's code awaits something that no workflow can await: nothing of \
                 its own is under way that could wake it. Input and output, clocks and tasks of \
                 a runtime belong into an activity or into ctx.local(..)",
            ),
            TurnFailure::Restless => f.write_str(
                "the workflow's code does not come to rest: its futures wake each other again \
                 and again within one turn",
            ),
        }
    }
}

impl std::error::Error for TurnFailure {}
