use std::fmt;

use crate::workflow::{Nondeterminism, TurnFailure, Unnamed};

/// Why a workflow could not be run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestFailure {
    Turn(TurnFailure),
    /// It wants an activity or a child for which there is nothing.
    NoMock {
        name: String,
    },
    Unnamed(Unnamed),
    /// It waits for what never comes.
    Stuck {
        waits: Vec<String>,
    },
    /// Its input cannot be written, or its result cannot be read.
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
                write!(f, "the test says nothing of `{name}`: give it a mock or the workflow")
            }
            TestFailure::Unnamed(unnamed) => unnamed.fmt(f),
            TestFailure::Stuck { waits } => {
                write!(f, "nothing more comes, and the workflow waits for {}", waits.join(", "))
            }
            TestFailure::Payload { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for TestFailure {}
