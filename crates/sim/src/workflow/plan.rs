use serde::{Deserialize, Serialize};

/// Where all workflows of a script are.
pub(crate) const TENANT: &str = "flows";
pub(crate) const LANE: &str = "w";

/// A message that nobody sends.
pub(crate) const NEVER: u8 = 255;

/// A workflow of a script, and the program that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowSpec {
    pub id: String,
    pub plan: Plan,
}

/// What a workflow is given: what each of its executions does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What it comes to does not depend on what comes first, nor on how long anything takes.
    pub is_confluent: bool,
    pub acts: Vec<Vec<Op>>,
    /// What the executions before came to.
    pub so_far: String,
}

/// What the code of a workflow does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    Activity(u64, Doing),
    /// Started, and awaited after what comes between.
    Started(u64, Doing, Vec<Op>),
    /// Started and dropped.
    Dropped(u64, Doing),
    /// An activity with so little time that it may not be done.
    Hurried(u64, u64),
    Local(u64),
    Sleep(u64),
    /// Waits for a message, perhaps not for ever.
    Event(u8, Option<u64>),
    /// Takes so many messages of a name, one after the other.
    Queue(u8, u8),
    /// Sends a message to itself and reads it.
    Echo(u64),
    Child(Vec<Op>),
    Detached(Vec<Op>),
    Join(Vec<Vec<Op>>),
    Select(Vec<Vec<Op>>),
    Timeout(u64, Vec<Op>),
    Shielded(Vec<Op>),
    /// Keeps a value under a key that no other has.
    Keep(u64),
    /// Reads a value that was kept, perhaps by an earlier execution.
    Recall(u64),
    Status(u64),
    Chance,
    /// The workflow fails.
    Fail,
}

/// What an activity does with its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doing {
    Succeed,
    Later(u64),
    /// Fails in its first attempts.
    Flaky(u32),
    Panicking,
    Never,
    /// Goes on until everything is healed, or for so long.
    Hang(u64),
}

/// What a client wishes for that is about workflows, which are counted modulo what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkflowWish {
    Start {
        workflow: u8,
    },
    /// Sends it one of the messages that it may wait for.
    Tell {
        workflow: u8,
        nth: u8,
    },
    /// Asks it to end.
    Cancel {
        workflow: u8,
    },
    /// Ends it at once.
    End {
        workflow: u8,
    },
    Prune {
        workflow: u8,
        keep: u8,
    },
    /// Takes a turn of a workflow, or an activity, and does nothing with it.
    Claim {
        lease_ms: u64,
    },
    /// Commits a turn under the lease of somebody, counted from the last one backwards: the next,
    /// the one after it, or the one before.
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
            Op::Event(NEVER, _) => {}
            Op::Event(name, _) => names.push(*name),
            Op::Queue(name, count) => names.extend((0..*count).map(|_| *name)),
            Op::Started(_, _, ops) | Op::Timeout(_, ops) | Op::Shielded(ops) => {
                ops.iter().for_each(|op| op.waits(names));
            }
            Op::Join(branches) | Op::Select(branches) => {
                branches.iter().flatten().for_each(|op| op.waits(names));
            }
            // Nobody outside knows the ids of others.
            _ => {}
        }
    }
}
