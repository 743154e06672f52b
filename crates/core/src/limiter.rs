use serde::{Deserialize, Serialize};

use crate::name::Tenant;
use crate::rate::{self, Rate, Starts};
use crate::record::{Filed, Record};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// What was spent of a limit per time. It comes to be when something is, and goes when all of it
/// has left the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limiter {
    pub tenant: Tenant,
    pub name: String,
    /// As it was said last.
    pub rate: Rate,
    pub spent: Vec<Starts>,
}

impl Limiter {
    pub fn key_of(tenant: &Tenant, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), name.into()])
    }

    /// How much is left.
    pub fn left(&self, now: Timestamp) -> u32 {
        self.rate.starts.saturating_sub(rate::counted(&self.spent, now))
    }

    /// When nothing that was spent counts any more.
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
            present: "due_at",
        }],
        listed_by: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.name.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![1.into(), self.empty_at().into()]
    }
}
