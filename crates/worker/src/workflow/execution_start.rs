use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_core::{HistoryPayload, LaneName, TaskId};

use super::unread_signal::UnreadSignal;

/// The start parameters of an execution of a workflow. They must be the same in every replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionStart {
    pub id: TaskId,
    /// The number of the execution, from 0. Continue-as-new starts the next one.
    #[serde(default)]
    pub execution: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// The default lane of its steps.
    #[serde(default)]
    pub lane: LaneName,
    /// The seed of `random` and `uuid`.
    pub seed: u64,
    /// The number of its first step. Numbers are not reused across executions.
    #[serde(default)]
    pub first_step: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<HistoryPayload>,
    /// The messages that the execution before it has not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<UnreadSignal>,
    /// The values at its start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, HistoryPayload>,
}

impl ExecutionStart {
    /// The first execution of a workflow without a parent.
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

/// What workflow code can know about its execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub id: TaskId,
    pub execution: u32,
    pub version: Option<String>,
    pub parent: Option<TaskId>,
    /// The attempt of the current turn, from 1. It may differ in a replay: for logs, not for
    /// decisions.
    pub attempt: u32,
}
