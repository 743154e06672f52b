use serde::{Deserialize, Serialize};

/// The tenant of all workflows of a script.
pub(crate) const TENANT: &str = "flows";
pub(crate) const LANE: &str = "w";

/// A message that is never sent.
pub(crate) const NEVER: u8 = 255;

/// A workflow of a script, and its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowSpec {
    pub id: String,
    pub plan: Plan,
}

/// The input of a workflow: the operations of each execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its outcome does not depend on order or duration.
    pub is_confluent: bool,
    pub acts: Vec<Vec<Op>>,
    /// The outcome of the earlier executions.
    pub so_far: String,
}

/// An operation of workflow code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    Activity(u64, ActivityBehavior),
    /// Started, and awaited after the operations in between.
    Started(u64, ActivityBehavior, Vec<Op>),
    /// Started and dropped.
    Dropped(u64, ActivityBehavior),
    /// An activity with a timeout so short that it may not complete.
    Hurried(u64, u64),
    Local(u64),
    Sleep(u64),
    /// Waits for a message, perhaps with a timeout.
    WaitSignal(u8, Option<u64>),
    /// Receives this many messages of a name, one after the other.
    SignalStream(u8, u8),
    /// Sends a message to itself and reads it.
    Echo(u64),
    Child(Vec<Op>),
    Detached(Vec<Op>),
    Join(Vec<Vec<Op>>),
    Select(Vec<Vec<Op>>),
    Timeout(u64, Vec<Op>),
    Shielded(Vec<Op>),
    /// Stores a value under a unique key.
    Keep(u64),
    /// Reads a stored value, perhaps of an earlier execution.
    Recall(u64),
    Status(u64),
    Chance,
    /// The workflow fails.
    Fail,
}

/// What an activity does with its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivityBehavior {
    Succeed,
    Later(u64),
    /// Fails in its first attempts.
    Flaky(u32),
    Panicking,
    Never,
    /// Runs until recovery begins, or for this long.
    Hang(u64),
}

/// An operation on workflows, which are counted modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkflowOperation {
    Start {
        workflow: u8,
    },
    /// Sends it one of the messages that it may wait for.
    Tell {
        workflow: u8,
        nth: u8,
    },
    /// Requests its cancellation.
    Cancel {
        workflow: u8,
    },
    /// Cancels it immediately.
    End {
        workflow: u8,
    },
    Prune {
        workflow: u8,
        keep: u8,
    },
    /// Claims a turn of a workflow, or an activity, and does nothing with it.
    Claim {
        lease_ms: u64,
    },
    /// Commits a turn under a lease, counted backwards from the last one: the next turn, one far
    /// ahead, or the one before.
    Commit {
        lease: u8,
        ahead: u8,
    },
}

impl Plan {
    pub(crate) fn one(ops: Vec<Op>, is_confluent: bool) -> Self {
        Self { is_confluent, acts: vec![ops], so_far: String::new() }
    }

    /// The names of the messages that it may wait for, one for each wait.
    pub(crate) fn waits(&self) -> Vec<u8> {
        let mut names = Vec::new();
        self.acts.iter().flatten().for_each(|op| op.waits(&mut names));
        names
    }
}

impl Op {
    fn waits(&self, names: &mut Vec<u8>) {
        match self {
            Op::WaitSignal(NEVER, _) => {}
            Op::WaitSignal(name, _) => names.push(*name),
            Op::SignalStream(name, count) => names.extend((0..*count).map(|_| *name)),
            Op::Started(_, _, ops) | Op::Timeout(_, ops) | Op::Shielded(ops) => {
                ops.iter().for_each(|op| op.waits(names));
            }
            Op::Join(branches) | Op::Select(branches) => {
                branches.iter().flatten().for_each(|op| op.waits(names));
            }
            // Clients do not know the ids of other workflows.
            _ => {}
        }
    }
}
