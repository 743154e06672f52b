use serde::{Deserialize, Serialize};

use crate::name::{LaneName, Tenant};
use crate::record::{Record, StoredRecord};
use crate::row::{RowKey, TableSpec, Value};

/// A named queue of tasks, with its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    pub tenant: Tenant,
    pub name: LaneName,
    pub state: LaneState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<LaneLimit>,
    /// The number of ready routes of this lane. Every insert or removal of one writes it.
    #[serde(default)]
    pub ready_routes: u32,
    /// A quota of this lane exists, which claims must check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_quota: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// Accepts tasks and leases them.
    Active,
    /// Accepts tasks, but leases none.
    Paused,
    /// Accepts no tasks, but leases those it has.
    Draining,
    /// Does neither.
    Disabled,
}

impl LaneState {
    pub const fn as_str(self) -> &'static str {
        match self {
            LaneState::Active => "active",
            LaneState::Paused => "paused",
            LaneState::Draining => "draining",
            LaneState::Disabled => "disabled",
        }
    }

    pub(crate) const fn accepts_tasks(self) -> bool {
        matches!(self, LaneState::Active | LaneState::Paused)
    }

    pub(crate) const fn leases_tasks(self) -> bool {
        matches!(self, LaneState::Active | LaneState::Draining)
    }
}

/// The concurrency limit of a lane. It counts leases from its first configuration on, even while
/// the limit is removed, so that a later limit includes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneLimit {
    pub limit: Option<u32>,
    pub running: u32,
}

impl LaneLimit {
    /// How many more leases it allows, at most `wanted`.
    pub(crate) fn remaining(self, wanted: usize) -> usize {
        let free = self.limit.map(|limit| limit.saturating_sub(self.running) as usize);
        free.map_or(wanted, |free| wanted.min(free))
    }
}

impl Lane {
    pub fn new(tenant: &Tenant, name: &LaneName) -> Self {
        Self {
            tenant: tenant.clone(),
            name: name.clone(),
            state: LaneState::Active,
            concurrency: None,
            ready_routes: 0,
            has_quota: false,
        }
    }

    pub fn key_of(tenant: &Tenant, name: &LaneName) -> RowKey {
        Self::row_key(vec![tenant.into(), name.into()])
    }

    /// How many tasks may be leased from this lane, at most `wanted`.
    pub(crate) fn remaining(&self, wanted: usize) -> usize {
        if !self.state.leases_tasks() {
            return 0;
        }
        self.concurrency.map_or(wanted, |limit| limit.remaining(wanted))
    }
}

impl Record for Lane {
    const SPEC: TableSpec = TableSpec {
        name: "lane",
        key: &["tenant", "name"],
        columns: &["state", "contended"],
        numbers: &["contended"],
        indexes: &[],
        list_indexes: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.name).into()]
    }

    fn columns(&self) -> Vec<Value> {
        let contended = self.concurrency.map(|_| 1);
        vec![self.state.as_str().into(), contended.into()]
    }
}
