use std::fmt;

use crate::workflow::{AnonymousFunction, Nondeterminism, TurnFailure};

/// Why a workflow could not be run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestFailure {
    Turn(TurnFailure),
    /// It runs an activity or a child that has no mock.
    NoMock {
        name: String,
    },
    AnonymousFunction(AnonymousFunction),
    /// It waits, and no input is scheduled.
    Stuck {
        waits: Vec<String>,
    },
    /// Its input does not encode, or its result does not decode.
    Payload {
        reason: String,
    },
}

impl From<TurnFailure> for TestFailure {
    fn from(failure: TurnFailure) -> Self {
        Self::Turn(failure)
    }
}

impl From<Nondeterminism> for TestFailure {
    fn from(found: Nondeterminism) -> Self {
        Self::Turn(found.into())
    }
}

impl fmt::Display for TestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TestFailure::Turn(failure) => failure.fmt(f),
            TestFailure::NoMock { name } => {
                write!(f, "`{name}` has no mock: give the test a mock or the workflow")
            }
            TestFailure::AnonymousFunction(unnamed) => unnamed.fmt(f),
            TestFailure::Stuck { waits } => {
                write!(f, "no input is scheduled, and the workflow waits for {}", waits.join(", "))
            }
            TestFailure::Payload { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for TestFailure {}
