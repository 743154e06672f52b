//! The lines of a workflow run, one line of JSON each, written by its processes and by their
//! parent. All write to one pipe, so that all lines are in one order.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// A process runs an activity.
    Began { process: u32, step: u32 },
    /// It has stopped running it, with any result.
    Left { process: u32, step: u32 },
    /// The workflow has ended, and its history was replayed without a difference.
    Ended { sum: u64, turns: usize },
    /// The parent is about to kill a process.
    Killing { process: u32 },
    /// It is dead.
    Died { process: u32 },
}
