//! What is said of the run of a workflow, by its processes and by whoever kills them, one line of
//! JSON each. All of them say it into one pipe, so that the lines of all are in one order.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// A process runs an activity.
    Began { process: u32, step: u32 },
    /// It has stopped running it, whatever came of it.
    Left { process: u32, step: u32 },
    /// The workflow has ended, and its history is gone through again without a difference.
    Ended { sum: u64, turns: usize },
    /// The parent is about to kill a process.
    Killing { process: u32 },
    /// It is dead.
    Died { process: u32 },
}
