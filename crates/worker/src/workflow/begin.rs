use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_core::{Carried, LaneName, TaskId};

use super::mail::Unread;

/// With what an execution of a workflow begins. It must be the same whenever it is replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    pub id: TaskId,
    /// Which one it is, from zero: the next begins when the workflow continues as new.
    #[serde(default)]
    pub execution: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// Where its steps go, unless the code says otherwise.
    #[serde(default)]
    pub lane: LaneName,
    /// What `random` and `uuid` are drawn from.
    pub seed: u64,
    /// The number of its first step: those of earlier executions never come again.
    #[serde(default)]
    pub first_step: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Carried>,
    /// What the execution before it has not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Unread>,
    /// The values as they were at its begin.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Carried>,
}

impl Begin {
    /// The first execution of a workflow that nobody waits for.
    pub fn new(id: impl Into<TaskId>, seed: u64) -> Self {
        Self {
            id: id.into(),
            execution: 0,
            version: None,
            parent: None,
            lane: LaneName::default(),
            seed,
            first_step: 1,
            input: None,
            carried: Vec::new(),
            values: BTreeMap::new(),
        }
    }
}

/// What code can know of the workflow that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub id: TaskId,
    pub execution: u32,
    pub version: Option<String>,
    pub parent: Option<TaskId>,
    /// How often the present turn was begun. It is not the same when the code is replayed: for
    /// logs, not for decisions.
    pub attempt: u32,
}
