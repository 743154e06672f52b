use serde::{Deserialize, Serialize};

use crate::name::Tenant;
use crate::rate::{self, Rate, WindowSlice};
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// The spent units of a rate limiter. It is created by the first spending, and deleted when all of
/// them have left the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limiter {
    pub tenant: Tenant,
    pub name: String,
    /// The rate of the last spending.
    pub rate: Rate,
    pub spent: Vec<WindowSlice>,
}

impl Limiter {
    pub fn key_of(tenant: &Tenant, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), name.into()])
    }

    /// The remaining units.
    pub fn left(&self, now: Timestamp) -> u32 {
        self.rate.limit.saturating_sub(rate::counted(&self.spent, now))
    }

    /// When the last spent unit leaves the window.
    pub(crate) fn empty_at(&self) -> Option<Timestamp> {
        self.spent.last().map(|starts| starts.until)
    }
}

impl Record for Limiter {
    const SPEC: TableSpec = TableSpec {
        name: "limiter",
        key: &["tenant", "name"],
        columns: &["contended", "due_at"],
        numbers: &["contended", "due_at"],
        indexes: &[IndexSpec {
            index: Index::LimiterDue,
            columns: &["due_at", "tenant", "name"],
            indexed_when: "due_at",
        }],
        list_indexes: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.name.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![1.into(), self.empty_at().into()]
    }
}
